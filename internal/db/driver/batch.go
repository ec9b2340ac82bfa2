package driver

// PipelineQuery is a statement that is sent together with others.
type PipelineQuery struct {
	SQL   string
	Bind  func(Statement) Statement // nil: there are no parameters
	OnRow func(Row)                 // nil: nobody needs the rows
	// Value takes the only value of the statement, an integer. The statement then has no parameters,
	// and the beginning of a transaction may ask several such statements in one. nil: OnRow does.
	Value func(int64)
	// Skip is asked where statements run one after the other: whether the answers before make this
	// one needless. nil: never.
	Skip func() bool
}

// Run runs the statement alone.
func (q PipelineQuery) Run(c Conn) error {
	st := c.Prep(q.SQL)
	if q.Bind != nil {
		st = q.Bind(st)
	}
	return st.Each(func(r Row) error {
		if q.OnRow != nil {
			q.OnRow(r)
		}
		return nil
	})
}

// BatchForms are the forms of statements that were declared by [BatchForm].
var BatchForms = map[string]string{}

// BatchForm declares how a statement is done for many sets of parameters by a driver to which
// each costs a round trip. In the form %s stands for the rows of parameters, with columns p1,
// p2, …. Nothing may depend on how many rows each execution changes, or on their order. It
// returns sql.
func BatchForm(sql, form string) string {
	BatchForms[sql] = form
	return sql
}

// Rows are rows of a table that a statement reads or changes: those that belong to one thing, such
// as an account.
type Rows struct {
	// Table may also be a unique index, whose values the statement takes or frees.
	Table string
	// Of is the kind of the thing. Each row of the table belongs to one thing of that kind.
	Of string
	// By is the parameter that names the thing, always an integer or always a text. Parameters count
	// from 1; 0: it may be any rows of the table.
	By int
	// Many says that a batch may have several executions for one thing: they use different rows.
	Many bool
}

// Reach are the rows of statements that were declared by [Only].
var Reach = map[string][]Rows{}

// Only declares that an execution of a statement uses no other rows than these. They are of the
// table that it changes and of those that it reads. Two executions may then change places unless
// in one table they may name the same thing. So those that wait can become one statement although
// others on the same tables were between them.
//
// A unique index joins rows of different things if the thing is not in its columns. One that
// frees such a value for another row, as a deletion does, names the index too, and so does one
// that takes it. A trigger's rows count as the statement's.
//
// In a batch each thing is named once, except by plain inserts. The second time begins another
// batch, so the effects may add up. Only returns sql.
func Only(sql string, rows ...Rows) string {
	Reach[sql] = rows
	return sql
}

// PrefetchForms are the forms of statements that were declared by [PrefetchForm].
var PrefetchForms = map[string]string{}

// PrefetchForm declares how a statement is done for many sets of parameters as the transaction
// begins. One that changes rows needs that, and one for which the usual form reads too much. In
// the form %s stands for the rows x of parameters, with columns p1, p2, …. It returns all
// parameters, then what the statement returns. PrefetchForm returns sql.
func PrefetchForm(sql, form string) string {
	PrefetchForms[sql] = form
	return sql
}
