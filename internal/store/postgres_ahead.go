package store

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What operations ask first is known before their transaction begins. It is asked in the round trip with
// which that begins, equal statements as one over arrays of their parameters, and kept until the operation
// asks. A statement that changes rows is done then, and its operation has to ask: it alone knows what else
// is to be done.

// arrayForms are the statements over arrays for those that change rows. They return all parameters, then
// what the statement returns. Rows are %s, with columns p1, p2, ….
var arrayForms = map[string]string{}

// forArrays says how a statement that changes rows is done for many sets of parameters.
func forArrays(sql, form string) string {
	arrayForms[sql] = form
	return sql
}

// prefetched is what was asked ahead.
type prefetched struct {
	of     map[string]map[string]*aheadAnswer // by statement and parameters
	byRow  map[rowName][]*aheadAnswer
	writes int // that nobody has asked for yet
}

type aheadAnswer struct {
	rows  [][][]byte
	write bool
	gone  bool // it was asked for, or may not be true any more
}

// aheadGroup is one statement of those asked ahead.
type aheadGroup struct {
	sql     string
	queries []query
}

// askAhead returns the questions for queries, and remembers their answers as they come.
func (c *postgresConn) askAhead(queries []query) (questions []question) {
	c.fetched = nil
	if len(queries) == 0 {
		return nil
	}
	c.fetched = &prefetched{of: map[string]map[string]*aheadAnswer{}, byRow: map[rowName][]*aheadAnswer{}}
	var groups []*aheadGroup
	for _, q := range queries {
		i := slices.IndexFunc(groups, func(g *aheadGroup) bool { return g.sql == q.sql })
		if i < 0 {
			i, groups = len(groups), append(groups, &aheadGroup{sql: q.sql})
			c.fetched.of[q.sql] = map[string]*aheadAnswer{}
		}
		answers, key := c.fetched.of[q.sql], string(argumentsKey(q.args))
		a := answers[key]
		if a == nil {
			a = &aheadAnswer{write: q.write}
			answers[key] = a
			groups[i].queries = append(groups[i].queries, q)
			if q.write {
				c.fetched.writes++
			}
		}
		c.fetched.byRow[q.row] = append(c.fetched.byRow[q.row], a)
	}
	for _, g := range groups {
		questions = append(questions, g.question(c))
	}
	return questions
}

// question asks all queries of a group.
func (g *aheadGroup) question(c *postgresConn) question {
	answers, n := c.fetched.of[g.sql], len(g.queries[0].args)
	sql := g.sql
	form, write := arrayForms[g.sql]
	if !write {
		form = selectForm(g.sql, n)
	}
	sql = overParameters(form, g.queries[0].args)
	return question{sql: sql, bind: func(st statement) statement {
		for i := range n {
			st = st.text(arrayParameter(g.queries, i))
		}
		return st
	}, answer: func(r row) {
		s := r.s.(*postgresStatement)
		values := s.rows[s.at]
		if a := answers[string(valuesKey(values[:n]))]; a != nil {
			a.rows = append(a.rows, values[n:])
		}
	}}
}

var equalsParameter = regexp.MustCompile(`([^<>!])= \?(\d*)`)

// selectForm is the form over arrays of a statement that selects.
func selectForm(sql string, n int) string {
	at := 0
	place := func(number string) string {
		if number == "" {
			at++
			number = fmt.Sprint(at)
		}
		return "x.p" + number
	}
	var b strings.Builder
	for rest := sql; rest != ""; {
		equals := equalsParameter.FindStringSubmatchIndex(rest)
		mark := strings.IndexByte(rest, '?')
		switch {
		case mark < 0:
			b.WriteString(rest)
			rest = ""
		case equals != nil && equals[0] < mark && mark < equals[1]:
			b.WriteString(rest[:equals[3]])
			b.WriteString("= ANY (ARRAY[" + place(rest[equals[4]:equals[5]]) + "])")
			rest = rest[equals[1]:]
		default:
			end := mark + 1
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			b.WriteString(rest[:mark] + place(rest[mark+1:end]))
			rest = rest[end:]
		}
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("x.p%d", i+1))
	}
	return "SELECT " + strings.Join(names, ", ") + ", q.* FROM %s, LATERAL (" + b.String() + ") AS q"
}

// overParameters puts the arrays of parameters into a form.
func overParameters(form string, args []argument) string {
	var values, names []string
	for i, a := range args {
		array := "bigint[]"
		if a.kind == kindText {
			array = "text[]"
		}
		values, names = append(values, "CAST(? AS "+array+")"), append(names, fmt.Sprintf("p%d", i+1))
	}
	return strings.Replace(form, "%s", "unnest("+strings.Join(values, ", ")+") AS x("+strings.Join(names, ", ")+")", 1)
}

// arrayParameter is the array of the queries' i-th arguments.
func arrayParameter(queries []query, i int) string {
	if queries[0].args[i].kind == kindInt {
		numbers := make([]int64, len(queries))
		for n := range queries {
			numbers[n] = queries[n].args[i].number
		}
		return arrayOf(numbers)
	}
	texts := make([]string, len(queries))
	for n := range queries {
		texts[n] = postgresText(queries[n].args[i].text)
	}
	return arrayOfTexts(texts)
}

// argumentsKey tells sets of parameters apart, as valuesKey does for values in binary format.
func argumentsKey(args []argument) (key []byte) {
	for _, a := range args {
		if a.kind == kindInt {
			key = binary.BigEndian.AppendUint64(append(key, 0, 0, 0, 8), uint64(a.number))
			continue
		}
		text := postgresText(a.text)
		key = append(binary.BigEndian.AppendUint32(key, uint32(len(text))), text...)
	}
	return key
}

func valuesKey(values [][]byte) (key []byte) {
	for _, v := range values {
		key = append(binary.BigEndian.AppendUint32(key, uint32(len(v))), v...)
	}
	return key
}

// take returns the answer to a statement with these parameters if it was asked ahead. It is good once.
func (p *prefetched) take(sql string, values [][]byte) *aheadAnswer {
	if p == nil {
		return nil
	}
	answers := p.of[sql]
	if answers == nil {
		return nil
	}
	a := answers[string(valuesKey(values))]
	if a == nil || a.gone {
		return nil
	}
	if a.gone = true; a.write {
		p.writes--
	}
	return a
}

// forget drops answers. What a statement has changed it has, whatever else did meanwhile.
func (c *postgresConn) forget(rows ...rowName) {
	if c.fetched == nil {
		return
	}
	if len(rows) == 0 {
		for _, answers := range c.fetched.byRow {
			drop(answers)
		}
	}
	for _, row := range rows {
		drop(c.fetched.byRow[row])
	}
}

func drop(answers []*aheadAnswer) {
	for _, a := range answers {
		a.gone = a.gone || !a.write
	}
}

// unusedAhead reports changes that were made ahead and that no operation has asked for.
func (c *postgresConn) unusedAhead() error {
	if c.fetched != nil && c.fetched.writes > 0 {
		for sql, answers := range c.fetched.of {
			for _, a := range answers {
				if a.write && !a.gone && len(a.rows) > 0 {
					return fmt.Errorf("%q was done ahead, and its operation has not seen it", firstWords(sql))
				}
			}
		}
	}
	return nil
}
