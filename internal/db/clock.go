package db

import (
	"context"
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// A clock that was ahead and is corrected leaves times in the database that are too late. Messages
// that were due at once stay invisible until the clock reaches them, and locks of dead processes
// last that much longer. The writer notices when the clock goes back, or at start-up when the
// latest row was created in the future. It then scans everything that waits, a part at a time.
//
// A time is corrected in two cases. The time it was counted from is stored beside it and lies
// in the future; or it is further away than such a time can be. Correcting twice does no harm.
// Times that somebody chose stay, such as delayed starts, deadlines and the expiry of keys.

// steppedBack is by how many milliseconds a clock must go back to be noticed. Less is waited out.
const steppedBack = 5 * 60 * 1000

// A transaction looks through clockStretch rows. Then the writer is left to others for clockRests
// times as long as that took.
const (
	ClockStretch = 1000
	clockRests   = 3
	leastRest    = 5 * time.Millisecond
)

// ClockMend is what a participant has mended.
type ClockMend struct {
	MadeAhead string   // finds out whether the latest row was made after ?1; "": no
	Few       []string // for tables with few rows: each statement looks at all. ?1 is the time
	Walks     []ClockWalk
	// Others mends what has no numbers, step by step: each step returns how many rows it has changed.
	Others func(ctx context.Context, s *DB, step func(func(*Tx) (int, error)) error) error
}

// ClockWalk is a table that is looked through by its number, and what is mended of it and of what
// belongs to its rows.
type ClockWalk struct {
	Table, Number string
	Statements    []string // ?1 is the time; above the number ?2, up to ?3
	More          map[string]func(now int64) []int64
}

func (c ClockWalk) stretch() string {
	return fmt.Sprintf("SELECT coalesce(max(n), 0) FROM (SELECT %[2]s AS n FROM %[1]s WHERE %[2]s > ? ORDER BY %[2]s LIMIT ? + 0) x", c.Table, c.Number)
}

// noticeClock takes in the database's time at the beginning of a transaction and tells when it
// went back.
func (w *Writer) noticeClock(at int64) {
	if w.latest-at >= steppedBack && w.clockBack != nil {
		select {
		case w.clockBack <- struct{}{}:
		default: // told already
		}
	}
	w.latest = at
}

// keepClock mends what a clock that went back has left, until the store ends.
func (s *DB) keepClock(back <-chan struct{}, warn func(string)) {
	for {
		select {
		case <-back:
			warn("the database's clock has gone back; what waits for the time that it showed is brought to the time it shows now")
			if err := s.MendClock(s.health.ctx); err != nil && s.health.ctx.Err() == nil {
				warn("what a clock that was ahead has left could not be mended; it is at the next start")
			}
		case <-s.health.ctx.Done():
			return
		}
	}
}

// clockMends are those of all participants.
func (w *Writer) clockMends() (mends []ClockMend) {
	for _, p := range w.parts {
		if m, ok := p.(clockMender); ok {
			mends = append(mends, m.ClockMend())
		}
	}
	return mends
}

// madeAhead reports whether the latest row of a kind was made in the future. Another process
// may have made one since this transaction began, so a little ahead is no sign of a clock that
// went back.
func (s *DB) madeAhead(ctx context.Context) (ahead bool, err error) {
	return Transact(ctx, s.Writer, Op{Stage: StageChange}, func(t *Tx) (ahead bool, err error) {
		for _, m := range t.w.clockMends() {
			if m.MadeAhead != "" && err == nil && !ahead {
				ahead, err = t.Prep(m.MadeAhead).Int(t.Now + steppedBack).One(func(driver.Row) {})
			}
		}
		return ahead, err
	})
}

// MendClock brings all that waits to the clock.
func (s *DB) MendClock(ctx context.Context) error {
	step := func(f func(*Tx) (int, error)) error {
		began := time.Now()
		_, err := Transact(ctx, s.Writer, Op{Stage: StageChange}, func(t *Tx) (int, error) {
			changed, err := f(t)
			if changed > 0 {
				t.SettingsChanged()
				t.After = append(t.After, func() { t.w.RescanAll(true) })
			}
			return changed, err
		})
		if err == nil {
			err = s.RestAfter(ctx, began)
		}
		return err
	}
	mends := s.Writer.clockMends()
	err := step(func(t *Tx) (changed int, err error) {
		for _, m := range mends {
			for _, sql := range m.Few {
				n, err := t.Prep(sql).Int(t.Now).Count()
				if err != nil {
					return changed, err
				}
				changed += n
			}
		}
		return changed + 1, nil // what the writer has in memory is looked at again in any case
	})
	for _, m := range mends {
		for _, walk := range m.Walks {
			for last, more := int64(0), true; more && err == nil; {
				after := last
				err = step(func(t *Tx) (changed int, err error) {
					changed, last, err = t.mendStretch(walk, after)
					return changed, err
				})
				more = last > 0
			}
		}
		if m.Others != nil && err == nil {
			err = m.Others(ctx, s, step)
		}
	}
	return err
}

// RestAfter leaves the writer to others after what began then.
func (s *DB) RestAfter(ctx context.Context, began time.Time) error {
	select {
	case <-time.After(max(leastRest, clockRests*time.Since(began))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mendStretch mends the next rows above a number. It returns that of the last one; 0: there are no
// more.
func (t *Tx) mendStretch(walk ClockWalk, after int64) (changed int, last int64, err error) {
	if _, err := t.Prep(walk.stretch()).Int(after).Int(ClockStretch).One(func(r driver.Row) { last = r.Int(0) }); err != nil || last == 0 {
		return 0, 0, err
	}
	for _, sql := range walk.Statements {
		st := t.Prep(sql).Int(t.Now).Int(after).Int(last)
		if more := walk.More[sql]; more != nil {
			for _, v := range more(t.Now) {
				st = st.Int(v)
			}
		}
		n, err := st.Count()
		if err != nil {
			return changed, last, err
		}
		changed += n
	}
	return changed, last, nil
}
