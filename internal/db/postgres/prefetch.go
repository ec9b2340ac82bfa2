package postgres

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgtype"
)

// What operations ask first is known before their transaction begins. It is fetched in the
// round trip with which that begins, and kept until the operation asks. Equal statements become
// one over arrays of their parameters. A statement that changes rows is done then, and its
// operation has to ask: it alone knows what else is to be done. Later an operation may have
// more fetched, in one round trip with what others wait for.

// prefetcher fetches for a connection what the operations of a transaction will read.
type prefetcher struct {
	fetched *prefetched       // for the transaction under way; nil: nothing
	ahead   []driver.Prefetch // to be fetched with what is asked next
	forms   map[string]string // statement → that for many sets of parameters
}

// forget drops what was fetched, and what was to be.
func (f *prefetcher) forget() { f.fetched, f.ahead = nil, nil }

// prefetched is what was asked ahead.
type prefetched struct {
	groups []aheadGroup
	byRow  map[driver.RowName]*aheadAnswer // the latest that depends on the row; the others follow
	writes int                             // that nobody has asked for yet
}

// aheadGroup is one statement of those asked ahead.
type aheadGroup struct {
	sql     string
	queries []*driver.Prefetch // until they are asked
	answers map[argumentsKey]*aheadAnswer
}

type aheadAnswer struct {
	rows  [][][]byte
	one   [1][][]byte // room for the first row, for most have one
	write bool
	again bool         // it may be asked for more than once
	gone  bool         // it was asked for, or may not be true any more
	next  *aheadAnswer // that depends on the same row
}

// argumentsKey tells sets of parameters apart.
type argumentsKey struct {
	numbers [driver.MaxArguments]int64
	text    string // all of them, each with its length
}

// prefetch returns the questions for queries, and remembers their answers as they come.
func (f *prefetcher) prefetch(queries []driver.Prefetch) (questions []driver.PipelineQuery) {
	if len(queries) == 0 {
		return nil
	}
	p := f.fetched
	if p == nil {
		p = &prefetched{byRow: make(map[driver.RowName]*aheadAnswer, len(queries))}
		f.fetched = p
	}
	room := make([]aheadAnswer, len(queries))
	for i := range queries {
		q := &queries[i]
		g := p.group(q.SQL)
		if g == nil {
			rest := len(queries) - i
			p.groups = append(p.groups, aheadGroup{sql: q.SQL, queries: make([]*driver.Prefetch, 0, rest), answers: make(map[argumentsKey]*aheadAnswer, rest)})
			g = &p.groups[len(p.groups)-1]
		}
		key := keyOf(q)
		a := g.answers[key]
		if a == nil || a.gone {
			a = &room[i]
			a.rows = a.one[:0]
			g.answers[key], g.queries = a, append(g.queries, q)
			a.next, p.byRow[q.Row] = p.byRow[q.Row], a
			a.again = q.Shared
			if a.write = q.Write; a.write {
				p.writes++
			}
		}
	}
	for i := range p.groups {
		if g := &p.groups[i]; len(g.queries) > 0 {
			questions = append(questions, g.question(f))
			g.queries = nil
		}
	}
	return questions
}

// Prefetch is that of [driver.Prefetches]. A strand waits together with others.
func (c *Conn) Prefetch(queries []driver.Prefetch) error {
	if !c.open {
		return nil
	}
	first := len(c.ahead)
	if c.PrefetchSoon(queries); len(c.ahead) == first {
		return nil
	}
	if c.waits() {
		return c.wait(c.running)
	}
	return c.ask(nil)
}

// PrefetchSoon is that of [driver.Prefetches].
func (f *prefetcher) PrefetchSoon(queries []driver.Prefetch) {
	for i := range queries {
		if !f.fetched.has(&queries[i]) {
			f.ahead = append(f.ahead, queries[i])
		}
	}
}

// Prefetched is that of [driver.Prefetches].
func (f *prefetcher) Prefetched(q driver.Prefetch) bool { return f.fetched.has(&q) }

// prefetchAhead returns the questions for what is to be fetched.
func (f *prefetcher) prefetchAhead() []driver.PipelineQuery {
	ahead := f.ahead
	f.ahead = nil
	return f.prefetch(ahead)
}

// has reports whether the answer to a query is there.
func (p *prefetched) has(q *driver.Prefetch) bool {
	if p == nil {
		return false
	}
	g := p.group(q.SQL)
	if g == nil {
		return false
	}
	a := g.answers[keyOf(q)]
	return a != nil && !a.gone
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
func (g *aheadGroup) question(f *prefetcher) driver.PipelineQuery {
	first := g.queries[0]
	sql, known := f.forms[g.sql]
	if !known {
		if sql = aheadForm(g.sql, first.Args[:first.N]); f.forms == nil {
			f.forms = map[string]string{}
		}
		f.forms[g.sql] = sql
	}
	n, kinds, queries, answers := first.N, first.Args, g.queries, g.answers
	return driver.PipelineQuery{SQL: sql, Bind: func(st driver.Statement) driver.Statement {
		for i := range n {
			st = st.Text(arrayParameter(queries, i))
		}
		return st
	}, OnRow: func(r driver.Row) {
		s := r.S.(*statement)
		values := s.rows[s.at]
		key := argumentsKey{}
		for i := range n {
			key.add(i, kinds[i].Kind == driver.KindText, values[i])
		}
		if a := answers[key]; a != nil {
			a.rows = append(a.rows, values[n:])
		}
	}}
}

// aheadForm is the form over arrays of a statement with such arguments.
func aheadForm(sql string, args []driver.Argument) string {
	form, own := driver.PrefetchForms[sql]
	if !own {
		form = selectForm(sql, len(args))
	}
	return overParameters(form, args)
}

// equalsParameter compares a column, and maybe names its table.
var equalsParameter = regexp.MustCompile(`(?:(\w+)\.)?[\w)]+ = \?(\d*)`)

// selectForm is the form over arrays of a statement that selects. Of several columns of a table
// that are compared one after the other, the first is compared with an array. That makes the join
// a lookup (see [lookups]). If all were, the planner would use one alone to look up.
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
	compared := "" // the table whose column was compared just before; "": none
	for rest := sql; rest != ""; {
		mark := strings.IndexByte(rest, '?')
		if mark < 0 {
			b.WriteString(rest)
			break
		}
		equals := equalsParameter.FindStringSubmatchIndex(rest)
		if equals == nil || mark < equals[0] || equals[1] <= mark {
			end := mark + 1
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			b.WriteString(rest[:mark] + place(rest[mark+1:end]))
			rest, compared = rest[end:], ""
			continue
		}
		table := "."
		if equals[2] >= 0 {
			table = rest[equals[2]:equals[3]]
		}
		parameter := place(rest[equals[4]:equals[5]])
		if table != compared || rest[:equals[0]] != " AND " {
			parameter = "ANY (ARRAY[" + parameter + "])"
		}
		b.WriteString(rest[:mark] + parameter)
		rest, compared = rest[equals[1]:], table
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("x.p%d", i+1))
	}
	return "SELECT " + strings.Join(names, ", ") + ", q.* FROM %s, LATERAL (" + b.String() + ") AS q"
}

// overParameters puts the arrays of parameters into a form.
func overParameters(form string, args []driver.Argument) string {
	var values, names []string
	for i, a := range args {
		array := "bigint[]"
		if a.Kind == driver.KindText {
			array = "text[]"
		}
		values, names = append(values, "CAST(? AS "+array+")"), append(names, fmt.Sprintf("p%d", i+1))
	}
	return strings.Replace(form, "%s", "unnest("+strings.Join(values, ", ")+") AS x("+strings.Join(names, ", ")+")", 1)
}

// arrayParameter is the array of the queries' i-th arguments.
func arrayParameter(queries []*driver.Prefetch, i int) string {
	if queries[0].Args[i].Kind == driver.KindInt {
		numbers := make([]int64, len(queries))
		for n := range queries {
			numbers[n] = queries[n].Args[i].Number
		}
		return driver.ArrayOf(numbers)
	}
	texts := make([]string, len(queries))
	for n := range queries {
		texts[n] = CleanText(queries[n].Args[i].Text)
	}
	return driver.ArrayOfTexts(texts)
}

func keyOf(q *driver.Prefetch) (key argumentsKey) {
	for i := range q.N {
		if a := &q.Args[i]; a.Kind == driver.KindInt {
			key.numbers[i] = a.Number
		} else {
			key.addText(CleanText(a.Text))
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

// take returns the answer to a statement with these parameters if it was asked ahead. It is
// good once.
func (p *prefetched) take(s *statement) *aheadAnswer {
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
	if a.gone = !a.again; a.write {
		p.writes--
	}
	return a
}

// DropPrefetched drops answers. What a statement has changed it has, whatever else did meanwhile.
func (f *prefetcher) DropPrefetched(row driver.RowName) {
	if f.fetched != nil {
		f.fetched.byRow[row].drop()
	}
}

func (f *prefetcher) DropAllPrefetched() {
	if f.fetched != nil {
		for _, a := range f.fetched.byRow {
			a.drop()
		}
	}
}

func (a *aheadAnswer) drop() {
	for ; a != nil; a = a.next {
		a.gone = a.gone || !a.write
	}
}

// unused reports changes that were made ahead and that no operation has asked for.
func (f *prefetcher) unused() error {
	if f.fetched == nil || f.fetched.writes == 0 {
		return nil
	}
	for i := range f.fetched.groups {
		for _, a := range f.fetched.groups[i].answers {
			if a.write && !a.gone && len(a.rows) > 0 {
				return fmt.Errorf("%q was done ahead, and its operation has not seen it", driver.FirstWords(f.fetched.groups[i].sql))
			}
		}
	}
	return nil
}
