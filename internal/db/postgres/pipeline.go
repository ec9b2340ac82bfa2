package postgres

import (
	"github.com/forebayhq/forebay/internal/db/driver"
)

func (c *Conn) flushOver(limit int) error {
	if c.pending.count < limit || c.waits() { // strands leave it to the next time that they all wait
		return nil
	}
	return c.flush(nil, nil)
}

// flush sends what waits, then last, if there is one, whose result it keeps. What is to be fetched
// ahead goes with last.
func (c *Conn) flush(last *statement, values [][]byte) error {
	var ahead []wanted
	if last != nil {
		var err error
		if ahead, err = c.takeAhead(); err != nil {
			return err
		}
	}
	sendings := c.pending.take(len(ahead) + 1)
	first := len(sendings)
	for _, w := range ahead {
		sendings = append(sendings, w.sending)
	}
	if last != nil {
		sendings = append(sendings, sending{last, values})
	}
	defer c.pending.memory.reset()
	return c.send(sendings, func(i int, result answer) {
		if n := i - first; n >= 0 && n < len(ahead) {
			ahead[n].took(result)
			return
		}
		c.result = result
	})
}

// QueryWithNow asks the time, then the question.
func (c *Conn) QueryWithNow(at *int64, q driver.PipelineQuery) error {
	c.patience()
	return c.ask([]driver.PipelineQuery{{SQL: SQLNow, OnRow: func(r driver.Row) { *at = r.Int(0) }}, q})
}

// RunPipeline has what waits done before the questions are answered.
func (c *Conn) RunPipeline(questions []driver.PipelineQuery) error {
	if len(questions) == 0 {
		return nil
	}
	if c.waits() {
		return c.askInStrand(questions)
	}
	return c.ask(questions)
}

// ask sends what waits, what is to be fetched ahead and all questions in one round trip. After an
// error it hands over nothing, so that Begin can ask once more on another connection.
func (c *Conn) ask(questions []driver.PipelineQuery) error {
	if c.open {
		questions = append(c.prefetchAhead(), questions...)
	}
	sendings := c.pending.take(len(questions))
	first := len(sendings)
	for _, q := range questions {
		st := driver.Conn{Driver: c}.Prep(q.SQL)
		if q.Bind != nil {
			st = q.Bind(st)
		}
		if st.Err != nil {
			return st.Err
		}
		s := st.S.(*statement)
		sendings = append(sendings, sending{s, c.pending.memory.copyOf(s)})
	}
	defer c.pending.memory.reset()
	answers := make([][][][]byte, len(questions)) // by question and row
	err := c.send(sendings, func(i int, result answer) {
		if i >= first {
			answers[i-first] = result.rows
		}
	})
	if err != nil {
		return err
	}
	for i, rows := range answers {
		sendings[first+i].s.each(rows, questions[i].OnRow)
	}
	return nil
}
