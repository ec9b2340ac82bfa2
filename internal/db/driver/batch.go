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
