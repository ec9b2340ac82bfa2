package batches

import (
	"bytes"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps batches.
type Store struct {
	*queue.Store
	ended   func(*db.Tx, Batch) error
	changed db.Listener[struct{}] // a batch is due
}

func (s *Store) Attach(*db.DB) {}

func (s *Store) Join(w *db.Writer) { key.Join(w, &participant{store: s}) }

// WhenEnded has f called in each transaction in which a batch becomes completed, failed, expired
// or cancelled. It is set before the database is opened.
func (s *Store) WhenEnded(f func(*db.Tx, Batch) error) { s.ended = f }

// OnDue sets the function that is called when a transaction of this process has made a batch due.
// It must be quick.
func (s *Store) OnDue(f func()) { s.changed.Set(func(struct{}) { f() }) }

// wordDue says that a batch is due.
var wordDue = db.NewWordKind('b', db.ToAll)

// Received hears that another process has made a batch due.
func (s *Store) Received(n *db.Notification) {
	if n.Lost || n.Many[wordDue] {
		s.changed.Notify(struct{}{})
		return
	}
	n.Each(wordDue, func(int64, int64, int64) { s.changed.Notify(struct{}{}) })
}

// Follow has the store hear which jobs end.
func (s *Store) Follow(list *jobs.Store) {
	list.WhenEnded(func(t *db.Tx, e jobs.Ended) error {
		if strings.HasPrefix(e.CorrelationID, idPrefix) { // others may have such an id, but no line
			d := key.Of(t)
			d.ended = append(d.ended, endedLine{e.Seq, outcomeOf(e)})
		}
		return nil
	})
}

// Outcomes of lines.
const (
	outcomeNone   = 0 // its job is not over
	outcomeAnswer = 1 // an answer of the provider's with success
	outcomeError  = 2 // an error
	outcomeNotRun = 3 // it was cancelled, or its time was over
)

// successPrefix begins the result of a job that the provider has answered with success.
var successPrefix = []byte(`{"status_code":2`)

func outcomeOf(e jobs.Ended) int64 {
	switch e.Status {
	case forebay.StatusCancelled, forebay.StatusExpired:
		return outcomeNotRun
	case forebay.StatusSucceeded:
		if e.Result == nil || bytes.HasPrefix(e.Result, successPrefix) { // errors are short, so they are in the database
			return outcomeAnswer
		}
	}
	return outcomeError
}

var key = db.NewKey(func(t *db.Tx, p *participant) *tx { return &tx{Tx: t, store: p.store} })

type participant struct {
	db.Passive
	store *Store
}

type tx struct {
	*db.Tx
	store *Store
	ended []endedLine
	due   bool
}

type endedLine struct{ seq, outcome int64 }

const (
	sqlEndLine = "UPDATE batch_lines SET outcome = ? WHERE seq = ? AND outcome = 0 RETURNING batch"
	// A batch is due when few of its lines wait and others can follow, or it waits for none.
	sqlCount = `
UPDATE batches SET ended = ended + ?1, completed = completed + ?2, failed = failed + ?3,
  due_at = CASE WHEN due_at > ?4 AND (fed < total OR fed = ended + ?1) AND fed - ended - ?1 <= CASE WHEN priority >= ?5 THEN ?7 WHEN priority >= ?6 THEN ?7 / 2 ELSE ?7 / 4 END
  THEN ?4 ELSE due_at END WHERE no = ?8 RETURNING due_at`
)

// sums are how many lines of a batch have ended, and how.
type sums struct{ ended, completed, failed int64 }

// Closes counts the lines that the transaction has ended.
func (p *participant) Closes(t *db.Tx) error {
	d := key.Begun(t)
	if d == nil {
		return nil
	}
	err := d.count()
	if err == nil && d.due {
		t.Notify(wordDue, 0, 0, 0)
	}
	return err
}

func (d *tx) count() error {
	t := d.Tx
	if len(d.ended) == 0 {
		return nil
	}
	of := map[int64]*sums{}
	questions := make([]driver.PipelineQuery, len(d.ended))
	for i, e := range d.ended {
		questions[i] = driver.PipelineQuery{SQL: sqlEndLine, Bind: func(st driver.Statement) driver.Statement { return st.Int(e.outcome).Int(e.seq) },
			OnRow: func(r driver.Row) {
				s := of[r.Int(0)]
				if s == nil {
					s = &sums{}
					of[r.Int(0)] = s
				}
				s.ended++
				switch e.outcome {
				case outcomeAnswer:
					s.completed++
				case outcomeError:
					s.failed++
				}
			}}
	}
	d.ended = nil
	if err := t.RunPipeline(questions); err != nil {
		return err
	}
	questions = questions[:0]
	for no, s := range of {
		questions = append(questions, driver.PipelineQuery{SQL: sqlCount, Bind: func(st driver.Statement) driver.Statement {
			return st.Int(s.ended).Int(s.completed).Int(s.failed).Int(t.Now).
				Int(level).Int(raised).Int(maxWaiting / 2).Int(no)
		}, OnRow: func(r driver.Row) { d.due = d.due || r.Int(0) == t.Now }})
	}
	return t.RunPipeline(questions)
}

// Committed tells that batches are due.
func (p *participant) Committed(t *db.Tx) {
	if d := key.Begun(t); d != nil && d.due {
		p.store.changed.Notify(struct{}{})
	}
}

const sqlEndLeases = "UPDATE batches SET leased_until = 0, due_at = ?1 WHERE due_at > 0 AND leased_until > ?1"

// TakeOver ends the leases of a process that is dead.
func (p *participant) TakeOver(t *db.Tx) error { return t.Prep(sqlEndLeases).Int(t.Now).Exec() }

// sqlMendLeases makes those batches due at once that a clock which was ahead has put off. One that
// is over may be kept until then.
const sqlMendLeases = `
UPDATE batches SET due_at = ?1, leased_until = ?1 WHERE due_at IS NOT NULL AND (due_at > ?1 + 60000 AND ended_at IS NULL OR leased_until > ?1 + 60000)`

// ClockMend mends what a clock that was ahead has left.
func (p *participant) ClockMend() db.ClockMend { return db.ClockMend{Few: []string{sqlMendLeases}} }

// batchRow names a batch.
func batchRow(no int64) driver.RowName { return driver.RowName{Of: "batches", No: no} }

// never is when a message becomes ready that is held: its session has another turn.
const never = 1 << 62
