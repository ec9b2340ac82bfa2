package store

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// What operations ask first is known before their transaction begins. It is asked in the round trip with
// which that begins, equal statements as one over arrays of their parameters, and kept until the operation
// asks. A statement that changes rows is done then, and its operation has to ask: it alone knows what else
// is to be done.

// prefetched is what was asked ahead.
type prefetched struct {
	groups []aheadGroup
	byRow  map[rowName]*aheadAnswer // the latest that depends on the row; the others follow
	writes int                      // that nobody has asked for yet
}

// aheadGroup is one statement of those asked ahead.
type aheadGroup struct {
	sql     string
	queries []query
	answers map[argumentsKey]*aheadAnswer
}

type aheadAnswer struct {
	rows  [][][]byte
	write bool
	gone  bool         // it was asked for, or may not be true any more
	next  *aheadAnswer // that depends on the same row
}

// argumentsKey tells sets of parameters apart.
type argumentsKey struct {
	numbers [maxArguments]int64
	text    string // all of them, each with its length
}

// askAhead returns the questions for queries, and remembers their answers as they come.
func (c *postgresConn) askAhead(queries []query) (questions []question) {
	c.fetched = nil
	if len(queries) == 0 {
		return nil
	}
	p := &prefetched{byRow: make(map[rowName]*aheadAnswer, len(queries))}
	c.fetched = p
	room := make([]aheadAnswer, len(queries))
	for i := range queries {
		q := &queries[i]
		g := p.group(q.sql)
		if g == nil {
			p.groups = append(p.groups, aheadGroup{sql: q.sql, answers: map[argumentsKey]*aheadAnswer{}})
			g = &p.groups[len(p.groups)-1]
		}
		key := q.key()
		a := g.answers[key]
		if a == nil {
			a = &room[i]
			g.answers[key], g.queries = a, append(g.queries, *q)
			a.next, p.byRow[q.row] = p.byRow[q.row], a
			if a.write = q.write; a.write {
				p.writes++
			}
		}
	}
	for i := range p.groups {
		questions = append(questions, p.groups[i].question(c))
	}
	return questions
}

func (p *prefetched) group(sql string) *aheadGroup {
	for i := range p.groups {
		if p.groups[i].sql == sql {
			return &p.groups[i]
		}
	}
	return nil
}

// question asks all queries of a group. Its text is made once for each connection.
func (g *aheadGroup) question(c *postgresConn) question {
	first := &g.queries[0]
	sql, known := c.aheadForms[g.sql]
	if !known {
		form, write := arrayForms[g.sql]
		if !write {
			form = selectForm(g.sql, first.n)
		}
		if sql = overParameters(form, first.args[:first.n]); c.aheadForms == nil {
			c.aheadForms = map[string]string{}
		}
		c.aheadForms[g.sql] = sql
	}
	n, kinds := first.n, first.args
	return question{sql: sql, bind: func(st statement) statement {
		for i := range n {
			st = st.text(arrayParameter(g.queries, i))
		}
		return st
	}, answer: func(r row) {
		s := r.s.(*postgresStatement)
		values := s.rows[s.at]
		key := argumentsKey{}
		for i := range n {
			key.add(i, kinds[i].kind == kindText, values[i])
		}
		if a := g.answers[key]; a != nil {
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

func (q *query) key() (key argumentsKey) {
	for i := range q.n {
		if a := &q.args[i]; a.kind == kindInt {
			key.numbers[i] = a.number
		} else {
			key.addText(postgresText(a.text))
		}
	}
	return key
}

// add adds a value in the database's binary format.
func (k *argumentsKey) add(i int, text bool, value []byte) {
	if text {
		k.addText(string(value))
	} else {
		k.numbers[i] = int64(binary.BigEndian.Uint64(value))
	}
}

func (k *argumentsKey) addText(text string) {
	if k.text == "" {
		k.text = text
		return
	}
	k.text = fmt.Sprint(len(k.text), ":", k.text, text)
}

// take returns the answer to a statement with these parameters if it was asked ahead. It is good once.
func (p *prefetched) take(s *postgresStatement) *aheadAnswer {
	if p == nil {
		return nil
	}
	g := p.group(s.original)
	if g == nil {
		return nil
	}
	key := argumentsKey{}
	for i, v := range s.values {
		if v == nil {
			return nil
		}
		key.add(i, s.types[i] == pgtype.TextOID, v)
	}
	a := g.answers[key]
	if a == nil || a.gone {
		return nil
	}
	if a.gone = true; a.write {
		p.writes--
	}
	return a
}

// forget drops answers. What a statement has changed it has, whatever else did meanwhile.
func (c *postgresConn) forget(row rowName) {
	if c.fetched != nil {
		c.fetched.byRow[row].drop()
	}
}

func (c *postgresConn) forgetAll() {
	if c.fetched != nil {
		for _, a := range c.fetched.byRow {
			a.drop()
		}
	}
}

func (a *aheadAnswer) drop() {
	for ; a != nil; a = a.next {
		a.gone = a.gone || !a.write
	}
}

// unusedAhead reports changes that were made ahead and that no operation has asked for.
func (c *postgresConn) unusedAhead() error {
	if c.fetched == nil || c.fetched.writes == 0 {
		return nil
	}
	for i := range c.fetched.groups {
		for _, a := range c.fetched.groups[i].answers {
			if a.write && !a.gone && len(a.rows) > 0 {
				return fmt.Errorf("%q was done ahead, and its operation has not seen it", firstWords(c.fetched.groups[i].sql))
			}
		}
	}
	return nil
}
