package postgres

import (
	"errors"
	"iter"
	"slices"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// Each call of [Conn.Interleave] that waits for an answer runs as a coroutine of its own: a
// strand. A strand pauses when it needs an answer. Once all strands are paused or done, their
// statements go to the server in one round trip, behind the writes that wait. Then the strands
// go on. Only one strand runs at a time.

// strand runs calls one after the other until one has to wait for an answer.
type strand struct {
	clones map[*statement]*statement // its own copies, for others may use the same ones meanwhile
	pause  func() bool               // until the answers are there; false: they will not come
	resume func() (struct{}, bool)   // until the next pause; false: it is done
	stop   func()
}

// strands are the strands of a connection.
type strands struct {
	running *strand   // nil: none
	idle    []*strand // that are done; their copies of statements are used again
	wanted  []wanted  // by strands that are paused
	alone   bool      // the strand that runs is not to be paused
}

// wanted is a statement whose answer a strand waits for.
type wanted struct {
	sending
	by   *strand
	took func(answer)
}

// errStopped ends a strand whose transaction has failed.
var errStopped = errors.New("another operation of the transaction has failed")

// Interleave is that of [driver.Driver].
func (c *Conn) Interleave(n int, do func(i int) error) error {
	if n <= 1 || !c.open || c.alone {
		for i := range n {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	}
	outer := c.running
	defer func() { c.running = outer }()
	var failed error
	var paused, answered []*strand
	defer func() {
		for _, s := range append(paused, answered...) {
			c.wanted = slices.DeleteFunc(c.wanted, func(w wanted) bool { return w.by == s })
			c.running = s
			s.stop()
		}
	}()
	next := 0
	run := func(s *strand) { // to its pause or its end
		c.running = s
		_, waits := s.resume()
		c.running = outer
		if waits {
			paused = append(paused, s)
		} else {
			c.idle = append(c.idle, s)
		}
	}
	for failed == nil && (next < n || len(paused) > 0) {
		for failed == nil && next < n && c.pending.count < maxPending {
			run(c.newStrand(func() {
				for failed == nil && next < n && c.pending.count < maxPending {
					next++
					if err := do(next - 1); err != nil && failed == nil {
						failed = err
					}
				}
			}))
		}
		if failed == nil && (len(paused) > 0 || c.pending.count >= maxPending) {
			failed = c.fetchWanted(outer)
			for paused, answered = nil, paused; failed == nil && len(answered) > 0; {
				s := answered[0]
				answered = answered[1:] // if it panics, the others are stopped
				run(s)
			}
		}
	}
	return failed
}

// Alone is that of [driver.Driver]: its statements go at once.
func (c *strands) Alone(f func() error) error {
	was := c.alone
	c.alone = true
	defer func() { c.alone = was }()
	return f()
}

// waits reports whether a statement is to wait for those of other strands.
func (c *strands) waits() bool { return c.running != nil && !c.alone }

// newStrand returns one that is to run f. It uses the copies of one that is done.
func (c *strands) newStrand(f func()) *strand {
	s := &strand{}
	if last := len(c.idle) - 1; last >= 0 {
		s, c.idle = c.idle[last], c.idle[:last]
	}
	s.resume, s.stop = iter.Pull(func(pause func(struct{}) bool) {
		s.pause = func() bool { return pause(struct{}{}) }
		f()
	})
	return s
}

// fetchWanted fetches what the strands wait for. One that is itself part of a strand waits with
// it.
func (c *Conn) fetchWanted(outer *strand) error {
	if outer != nil {
		return c.wait(outer)
	}
	ahead, err := c.takeAhead()
	if err != nil {
		return err
	}
	c.wanted = append(c.wanted, ahead...)
	if len(c.wanted) == 0 && c.pending.count < maxPending {
		return nil // a call that runs alone has fetched what the others wait for
	}
	asked := c.wanted
	c.wanted = nil
	sendings := c.pending.take(len(asked))
	first := len(sendings)
	for i := range asked {
		sendings = append(sendings, asked[i].sending)
	}
	defer c.pending.memory.reset()
	return c.send(sendings, func(i int, result answer) {
		if i >= first {
			asked[i-first].took(result)
		}
	})
}

// takeAhead returns what is to be fetched ahead, in any order.
func (c *Conn) takeAhead() (ahead []wanted, err error) {
	for _, q := range c.prefetchAhead() {
		st := q.Bind(driver.Conn{Driver: c}.Prep(q.SQL))
		if st.Err != nil {
			return nil, st.Err
		}
		s := st.S.(*statement)
		ahead = append(ahead, wanted{sending{s, slices.Clone(s.values)}, nil, func(result answer) { s.each(result.rows, q.OnRow) }})
	}
	return ahead, nil
}

// wait pauses the strand that runs until what is wanted was fetched.
func (c *strands) wait(s *strand) error {
	goOn := s.pause()
	c.running = s // others ran meanwhile
	if !goOn {
		return errStopped
	}
	return nil
}

// runInStrand runs a statement together with those of other strands.
func (s *statement) runInStrand() error {
	c := s.c
	c.wanted = append(c.wanted, wanted{sending{s, s.values}, c.running, func(result answer) { s.rows, s.tag = result.rows, result.tag }})
	if err := c.wait(c.running); err != nil {
		return err
	}
	s.ran, s.at = true, -1
	return nil
}

// askInStrand asks questions together with those of other strands.
func (c *Conn) askInStrand(questions []driver.PipelineQuery) error {
	results := make([]answer, len(questions))
	asked := make([]*statement, len(questions))
	for i, q := range questions {
		st := driver.Conn{Driver: c}.Prep(q.SQL)
		if q.Bind != nil {
			st = q.Bind(st)
		}
		if st.Err != nil {
			return st.Err
		}
		asked[i] = st.S.(*statement)
		values := slices.Clone(asked[i].values)
		for n, v := range values { // numbers are encoded in place
			if len(v) == 8 {
				values[n] = slices.Clone(v)
			}
		}
		c.wanted = append(c.wanted, wanted{sending{asked[i], values}, c.running, func(result answer) { results[i] = result }})
	}
	if err := c.wait(c.running); err != nil {
		return err
	}
	for i, q := range questions {
		asked[i].each(results[i].rows, q.OnRow)
	}
	return nil
}

// clone returns the strand's own copy of a statement.
func (st *strand) clone(s *statement) *statement {
	own := st.clones[s]
	if own == nil {
		if st.clones == nil {
			st.clones = map[*statement]*statement{}
		}
		own = &statement{c: s.c, of: s, original: s.original, table: s.table, types: s.types, formats: s.formats,
			values: make([][]byte, len(s.values)), numbers: make([][8]byte, len(s.numbers))}
		st.clones[s] = own
	}
	return own
}
