package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// An orchestration is a function whose steps are kept as a history of events, from which it is replayed.
// The store knows nothing of what the events say: it keeps the history, the events that have arrived
// since (the inbox), the activities that are under way, and whose turn it is.

// NewOrchestration is an instance to store.
type NewOrchestration struct {
	Tenant    int64
	ID        string
	Execution string
	Name      string
	Version   string
	Input     Payload
	Event     Payload // that starts it
	StartAt   int64   // milliseconds; 0: now
	KeyID     string  // the API key whose budget pays for its jobs as well; "": none. Called by another instance, it has that one's
	Audit     Audit   // of who starts it
	Replacing Audit   // of who starts it where another instance had its id
	parent    int64
}

// AnyEnd are the statuses of instances that are over.
var AnyEnd = []forebay.OrchestrationStatus{forebay.OrchestrationCompleted, forebay.OrchestrationFailed, forebay.OrchestrationTerminated, forebay.OrchestrationCanceled}

// CreateOrchestration stores an instance. If there is one with its id already it is refused, unless
// that one ended with one of the statuses to replace: then it is purged in the same transaction.
func (s *OrchestrationStore) CreateOrchestration(ctx context.Context, o NewOrchestration, replace ...forebay.OrchestrationStatus) error {
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageSettle, party: o.Tenant, numbers: 2, rows: 4, size: len(o.Input.inline()) + len(o.Event.inline()), local: true}, func(t *orchestrateTx) (struct{}, error) {
		made, err := t.createOrchestration(o, replace)
		if err == nil && !made {
			err = forebay.Errorf(forebay.CodeConflict, "there is an instance %s already", o.ID)
		}
		if err == nil {
			err = auditIn(t.tx, o.Audit)
		}
		return struct{}{}, err
	})
	return err
}

const sqlInsertOrchestration = `
INSERT INTO orchestrations (no, tenant, id, execution, name, version, parent, created_at, key_id, input, input_blob) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

const sqlInsertTurn = `
INSERT INTO orchestration_turns (instance, pool, visible, status, updated_at) VALUES (?, ?, ?, ?, ?)`

// createOrchestration reports whether it could: there was no instance with that id, or one that may be replaced.
func (t *orchestrateTx) createOrchestration(o NewOrchestration, replace []forebay.OrchestrationStatus) (bool, error) {
	old, err := t.orchestrationOf(o.Tenant, o.ID)
	if err != nil || old.no != 0 && (!old.over || !slices.Contains(replace, old.end)) {
		return false, err
	}
	if old.no != 0 {
		t.changed(old.no) // whoever watches it has another to watch
		if err := errors.Join(t.purgeOrchestration(old.no), auditIn(t.tx, o.Replacing)); err != nil {
			return false, err
		}
	}
	pool, err := t.poolOf(o.Tenant, WorkTurn, o.Name)
	if err != nil {
		return false, err
	}
	no, err := t.queue.newSeq()
	if err != nil {
		return false, err
	}
	err = t.prep(sqlInsertOrchestration).int(no).int(o.Tenant).text(o.ID).text(o.Execution).text(o.Name).textOrNull(o.Version).intOrNull(o.parent).
		int(t.now).textOrNull(o.KeyID).blob(o.Input.inline()).textOrNull(o.Input.Blob).exec()
	if err != nil {
		return false, err
	}
	at := max(t.now, o.StartAt)
	if err := t.prep(sqlInsertTurn).int(no).int(pool).int(at).text(string(forebay.OrchestrationPending)).int(t.now).exec(); err != nil {
		return false, err
	}
	if err := t.keepBlob(no, o.Input); err != nil {
		return false, err
	}
	t.workReady(pool, at)
	return true, t.addEvent(no, at, false, o.Event)
}

// orchestrationRef is what most transitions need to know of an instance.
type orchestrationRef struct {
	no        int64
	execution string
	name      string
	over      bool
	end       forebay.OrchestrationStatus // how it ended; "": it is not over
	pool      int64                       // of its turns, unless it is over
	begins    int64                       // when it may have its first turn; 0: it has had it, or has it now
	suspended bool                        // it is, or is about to be
	ending    bool                        // it is to be terminated
	parent    int64                       // the instance that called it and hears how it ends; 0: none does
}

func (t *orchestrateTx) orchestrationOf(tenant int64, id string) (o orchestrationRef, err error) {
	_, err = t.prep(`SELECT o.no, o.execution, o.name, coalesce(o.status, ''), coalesce(t.pool, 0),
		CASE WHEN t.status = 'Pending' AND t.token IS NULL THEN t.visible ELSE 0 END,
		coalesce((SELECT p.name FROM orchestration_pools p WHERE p.no = t.pool AND p.kind = ?), ''), coalesce(o.parent, 0)
		FROM orchestrations o LEFT JOIN orchestration_turns t ON t.instance = o.no WHERE o.tenant = ? AND o.id = ?`).
		int(int64(workHalt)).int(tenant).text(id).one(func(r row) {
		end, halt := r.text(3), r.text(6)
		o = orchestrationRef{no: r.int(0), execution: r.text(1), name: r.text(2), over: end != "", end: forebay.OrchestrationStatus(end), pool: r.int(4),
			begins: r.int(5), suspended: halt == suspendPool, ending: halt == terminatePool, parent: r.int(7)}
	})
	return o, err
}

// existing is orchestrationOf for an instance that there must be.
func (t *orchestrateTx) existing(tenant int64, id string) (orchestrationRef, error) {
	o, err := t.orchestrationOf(tenant, id)
	if err == nil && o.no == 0 {
		err = noOrchestration(id)
	}
	return o, err
}

// addEvent puts an event into an instance's inbox. answer says that its execution has asked for it.
func (t *orchestrateTx) addEvent(instance, at int64, answer bool, event Payload) error {
	no, err := t.queue.newSeq()
	if err != nil {
		return err
	}
	if event.Blob != "" {
		if err := t.keepBlob(instance, event); err != nil {
			return err
		}
		return t.prep("INSERT INTO orchestration_inbox (instance, no, visible, answer, set_at, event_blob) VALUES (?, ?, ?, ?, ?, ?)").
			int(instance).int(no).int(at).int(asInt(answer)).int(t.now).text(event.Blob).exec()
	}
	return t.prep("INSERT INTO orchestration_inbox (instance, no, visible, answer, set_at, event) VALUES (?, ?, ?, ?, ?, ?)").
		int(instance).int(no).int(at).int(asInt(answer)).int(t.now).blob(event.Bytes).exec()
}

// wakeInstance makes an instance ready for a turn, unless it is having one: that looks again when it ends. A pool of 0 is looked up.
func (t *orchestrateTx) wakeInstance(instance, pool int64) error {
	if t.woken[instance] {
		return nil
	}
	if pool == 0 {
		found, err := t.prep("SELECT pool FROM orchestration_turns WHERE instance = ?").int(instance).one(func(r row) { pool = r.int(0) })
		if err != nil || !found {
			return err
		}
	}
	if t.woken == nil {
		t.woken = map[int64]bool{}
	}
	t.woken[instance] = true
	t.workReady(pool, t.now)
	return t.prep("UPDATE orchestration_turns SET visible = ? WHERE instance = ? AND token IS NULL AND visible > ?").
		int(t.now).int(instance).int(t.now).exec()
}

// Effect is what an event does to an instance besides what the code makes of it.
type Effect int

const (
	NoEffect Effect = iota
	Suspends
	Resumes
	Terminates
)

// signal puts an event into an instance's inbox and has its next turn taken by whoever can: by any process if the event
// keeps it from going on. Nothing comes before its start, which an end does not wait for.
func (t *orchestrateTx) signal(tenant int64, o orchestrationRef, answer bool, event Payload, does Effect) (err error) {
	at, pool := max(t.now, o.begins), o.pool
	switch does {
	case Suspends:
		pool, err = t.poolOf(tenant, workHalt, suspendPool)
	case Resumes:
		pool, err = t.poolOf(tenant, WorkTurn, o.name)
	case Terminates:
		if at > t.now {
			at = t.now
			err = t.prep("UPDATE orchestration_inbox SET visible = ? WHERE instance = ? AND visible > ?").int(at).int(o.no).int(at).exec()
		}
		if err == nil {
			pool, err = t.poolOf(tenant, workHalt, terminatePool)
		}
	}
	if err != nil {
		return err
	}
	if err := t.addEvent(o.no, at, answer, event); err != nil {
		return err
	}
	switch {
	case pool != o.pool:
		t.workReady(pool, at)
		return t.prep("UPDATE orchestration_turns SET pool = ?, visible = CASE WHEN token IS NULL AND visible > ? THEN ? ELSE visible END WHERE instance = ?").
			int(pool).int(at).int(at).int(o.no).exec()
	case at > t.now: // it has its first turn then
		return nil
	}
	return t.wakeInstance(o.no, o.pool)
}

// Signal is an event that somebody sends an instance.
type Signal struct {
	Tenant int64
	ID     string
	Event  Payload
	Effect Effect
	Audit  Audit // of who sends it
}

// changesNothing reports whether an instance is already as the event would have it. Some SDKs fail on being resumed without having been
// suspended.
func (o orchestrationRef) changesNothing(does Effect) bool {
	switch does {
	case Suspends:
		return o.suspended
	case Resumes:
		return !o.suspended
	case Terminates:
		return o.ending
	}
	return false
}

// SendOrchestration puts an event into the inbox of an instance that is not over, nor about to be. One that would change nothing is
// left out: it resumes what is not suspended, or suspends what is.
func (s *OrchestrationStore) SendOrchestration(ctx context.Context, g Signal) error {
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageSettle, party: g.Tenant, numbers: 1, rows: 2, size: len(g.Event.inline()), local: true}, func(t *orchestrateTx) (struct{}, error) {
		o, err := t.existing(g.Tenant, g.ID)
		switch {
		case err != nil:
			return struct{}{}, err
		case o.over:
			return struct{}{}, forebay.Errorf(forebay.CodeGone, "the instance %s is over", g.ID)
		case o.ending && g.Effect != Terminates:
			return struct{}{}, forebay.Errorf(forebay.CodeGone, "the instance %s is being terminated", g.ID)
		case o.changesNothing(g.Effect):
			return struct{}{}, t.freePayload(g.Event)
		}
		if err := t.signal(g.Tenant, o, false, g.Event, g.Effect); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, auditIn(t.tx, g.Audit)
	})
	return err
}

func noOrchestration(id string) error {
	return forebay.Errorf(forebay.CodeNotFound, "there is no instance %s", id)
}

// OrchestrationRow is an instance as stored.
type OrchestrationRow struct {
	forebay.Orchestration
	No                    int64
	Execution             string
	InputBlob, OutputBlob string // keys of the blobs that hold the input and the output, which are nil then
}

const orchestrationColumns = `
SELECT o.no, o.id, o.execution, o.name, coalesce(o.version, ''), coalesce(p.id, ''), coalesce(t.status, o.status), o.input, o.output,
  CASE WHEN t.instance IS NULL THEN o.custom ELSE t.custom END, o.failure, o.created_at, coalesce(t.started_at, o.started_at), coalesce(t.updated_at, o.completed_at), o.completed_at, coalesce(o.input_blob, ''), coalesce(o.output_blob, '')
FROM orchestrations o LEFT JOIN orchestration_turns t ON t.instance = o.no LEFT JOIN orchestrations p ON p.no = o.parent `

func readOrchestration(r row) (OrchestrationRow, error) {
	o := OrchestrationRow{No: r.int(0), Execution: r.text(2), InputBlob: r.text(15), OutputBlob: r.text(16), Orchestration: forebay.Orchestration{
		ID: r.text(1), Name: r.text(3), Version: r.text(4), ParentID: r.text(5), Status: forebay.OrchestrationStatus(r.text(6)),
		Input: r.blob(7), Output: r.blob(8), CustomStatus: r.blob(9), CreatedAt: fromMillis(r.int(11)),
		StartedAt: fromMillisOrNil(r, 12), UpdatedAt: fromMillis(r.int(13)), CompletedAt: fromMillisOrNil(r, 14),
	}}
	if failure := r.blob(10); failure != nil {
		return o, json.Unmarshal(failure, &o.Failure)
	}
	return o, nil
}

// size is how many bytes its payloads have, wherever they are.
func (o *OrchestrationRow) size() int {
	return Payload{o.Input, o.InputBlob}.Size() + Payload{o.Output, o.OutputBlob}.Size() + len(o.CustomStatus)
}

// Orchestration returns an instance.
func (s *OrchestrationStore) Orchestration(ctx context.Context, tenant int64, id string) (o OrchestrationRow, err error) {
	err = s.read(ctx, func(c conn) (err error) {
		var failed error
		found, err := c.prep(orchestrationColumns + "WHERE o.tenant = ? AND o.id = ?").int(tenant).text(id).
			one(func(r row) { o, failed = readOrchestration(r) })
		if err == nil && !found {
			return noOrchestration(id)
		}
		if err == nil {
			err = failed
		}
		return err
	})
	return o, err
}

// OrchestrationQuery selects instances.
type OrchestrationQuery struct {
	Tenant      int64
	Prefix      string // of their ids
	Name        string
	Statuses    []forebay.OrchestrationStatus // none: all
	From, Until time.Time                     // when they were made; zero: no bound
	Below       int64                         // the number of the last one on the page before; 0: none
	Limit       int
}

// orchestrationPage is how many instances are read at once.
const orchestrationPage = 100

// orchestrationPageBytes is where a page ends for the size of its instances.
const orchestrationPageBytes = 16 << 20

const sqlOrchestrations = orchestrationColumns + `
WHERE o.tenant = ? AND o.no < ? AND o.created_at >= ? AND o.created_at <= ?
  AND (? = '' OR o.name = ?) AND (? = '' OR substr(o.id, 1, CAST(? AS INTEGER)) = ?)`

// among narrows a list by an index, where there is one for the statuses: for those that are not over, and for one that is not Completed.
func (q *OrchestrationQuery) among() (sql, status string) {
	switch {
	case len(q.Statuses) > 0 && !slices.ContainsFunc(q.Statuses, forebay.OrchestrationStatus.Terminal):
		return " AND o.status IS NULL", ""
	case len(q.Statuses) == 1 && q.Statuses[0] != forebay.OrchestrationCompleted:
		return " AND o.status <> 'Completed' AND o.status = ?", string(q.Statuses[0])
	}
	return "", ""
}

// Orchestrations returns instances, the newest first, and whether there are more.
func (s *OrchestrationStore) Orchestrations(ctx context.Context, q OrchestrationQuery) (found []OrchestrationRow, more bool, err error) {
	until := int64(asleep)
	if !q.Until.IsZero() {
		until = q.Until.UnixMilli()
	}
	err = s.read(ctx, func(c conn) error {
		found, more = nil, false
		below, seen, size := q.Below, orchestrationPage, 0
		if below == 0 {
			below = asleep
		}
		for seen == orchestrationPage {
			seen = 0
			among, status := q.among()
			st := c.prep(sqlOrchestrations + among + " ORDER BY o.no DESC LIMIT ? + 0").int(q.Tenant).int(below).int(endedBefore(q.From)).int(until).text(q.Name).text(q.Name).
				text(q.Prefix).int(int64(utf8.RuneCountInString(q.Prefix))).text(q.Prefix)
			if status != "" {
				st = st.text(status)
			}
			err := st.int(orchestrationPage).each(func(r row) error {
				seen++
				below = r.int(0)
				if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, forebay.OrchestrationStatus(r.text(6))) {
					return nil
				}
				if len(found) == q.Limit || size >= orchestrationPageBytes {
					more = true
					return errStop
				}
				o, err := readOrchestration(r)
				found = append(found, o)
				size += o.size()
				return err
			})
			if err != nil {
				return unlessStopped(err)
			}
			if c.limit != nil && c.limit() != nil {
				return c.limit()
			}
		}
		return nil
	})
	return found, more, err
}
