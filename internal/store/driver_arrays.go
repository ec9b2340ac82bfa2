package store

// question is a statement that is sent together with others, and what is done with each row of its answer.
type question struct {
	sql    string
	bind   func(statement) statement // nil: there are no parameters
	answer func(row)                 // nil: nobody needs it
}

// askOf asks the one question.
func (q question) askOf(c conn) error {
	return q.bind(c.prep(q.sql)).each(func(r row) error {
		q.answer(r)
		return nil
	})
}

// mergeable tells how a statement runs over arrays of its parameters, whose rows are %s with columns p1, p2, ….
var mergeable = map[string]string{}

// merges says how a statement is done for many sets of parameters, whose rows are %s with columns p1, p2, …, by a driver
// to which each is expensive. Nothing may depend on how many rows each execution changes, or on their order.
func merges(sql, form string) string {
	mergeable[sql] = form
	return sql
}

// arrayForms are the statements over arrays for those that change rows. They return all parameters, then
// what the statement returns. Rows are %s, with columns p1, p2, ….
var arrayForms = map[string]string{}

// forArrays says how a statement that changes rows is done for many sets of parameters.
func forArrays(sql, form string) string {
	arrayForms[sql] = form
	return sql
}
