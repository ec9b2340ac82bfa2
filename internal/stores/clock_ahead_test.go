package stores_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/retention"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/webhook"
)

// ahead is by how much the clock of these tests is wrong for a while.
const ahead = 2 * time.Hour

// everything opens all stores on every engine.
var everything = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores.Stores, error) { return stores.Open(ctx, opts) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
	Parked: func(s *stores.Stores, _ *db.Tx) int {
		return len(jobs.Key.In(s.DB.Writer).Waiters) + len(bus.Key.In(s.DB.Writer).Waiters)
	},
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tenantNumber(t testing.TB, s *stores.Stores, name string) int64 {
	t.Helper()
	no, err := s.Queues.EnsureTenant(t.Context(), name)
	noError(t, err)
	return no
}

func queueNumber(t testing.TB, s *stores.Stores, name string) int64 {
	t.Helper()
	no, err := s.Queues.EnsureQueue(t.Context(), name)
	noError(t, err)
	return no
}

func putJob(t testing.TB, s *stores.Stores, tenant int64, queue string, job jobs.NewJob) {
	t.Helper()
	job.Tenant, job.Queue, job.Task, job.MaxAttempts, job.Input, job.InputSize = tenant, queueNumber(t, s, queue), "echo", 5, []byte("1"), 1
	made, err := s.Jobs.Submit(t.Context(), []jobs.NewJob{job})
	if err == nil {
		err = made[0].Err
	}
	noError(t, err)
}

// takeJob claims the job of a queue that is there.
func takeJob(t testing.TB, s *stores.Stores, from string) *jobs.LockedJob {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := s.Jobs.Claim(ctx, jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueNumber(t, s, from), queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20,
		Lock: time.Minute, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
	noError(t, err)
	return &got[0]
}

// anyWork asks for one turn or activity.
var anyWork = orchestrate.ClaimRequest{Max: 1, Lock: time.Minute,
	Taker: &workqueues.Taker{Takes: func(string) workqueues.Condition { return workqueues.Always }}}

func takeTurn(t testing.TB, s *stores.Stores) *orchestrate.OrchestrationItem {
	t.Helper()
	turns, err := s.Orchestrations.ClaimOrchestrations(t.Context(), anyWork)
	noError(t, err)
	return &turns[0]
}

// clockTrial is one of each thing that waits, stored by a clock that is ahead.
type clockTrial struct {
	*testing.T
	s           *stores.Stores
	right       int64 // milliseconds: the time by the clock before it was ahead, and after
	tenant      int64
	plain       bus.MessageQueue
	sessions    bus.MessageQueue
	held        []bus.Message // under lock
	heldRetries map[string]*jobs.LockedJob
}

func (c *clockTrial) job(id string) *jobs.LockedJob {
	c.Helper()
	c.put(id, id, nil)
	return takeJob(c.T, c.s, id)
}

// put submits a job to a queue.
func (c *clockTrial) put(queue, id string, scheduled *time.Time) {
	c.Helper()
	putJob(c.T, c.s, c.tenant, queue, jobs.NewJob{ID: id, ScheduledAt: scheduled})
}

func (c *clockTrial) send(q bus.MessageQueue, messages ...bus.MessageContent) {
	c.Helper()
	_, err := c.s.Bus.Send(c.Context(), q, messages)
	noError(c.T, err)
}

func (c *clockTrial) run(statements ...string) {
	c.Helper()
	_, err := db.Transact(c.Context(), c.s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		for _, sql := range statements {
			if err := t.Prep(sql).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	noError(c.T, err)
}

func (c *clockTrial) number(sql string) (n int64) {
	c.Helper()
	noError(c.T, c.s.DB.Read(c.Context(), func(conn driver.Conn) error {
		found, err := conn.Prep(sql).One(func(r driver.Row) { n = r.Int(0) })
		if err == nil && !found {
			err = errors.New("nothing is found by " + sql)
		}
		return err
	}))
	return n
}

func (c *clockTrial) receive(n int) []bus.Message {
	c.Helper()
	got, err := c.s.Bus.Receive(c.Context(), bus.ReceiveRequest{Queue: c.plain, Max: n, MaxBytes: 1 << 20})
	if err != nil || len(got) != n {
		c.Fatalf("received %d messages, expected %d: %v", len(got), n, err)
	}
	return got
}

// before stores what is there when the clock jumps ahead.
func (c *clockTrial) before() {
	ctx, s := c.Context(), c.s
	c.tenant, c.heldRetries = tenantNumber(c.T, s, "t"), map[string]*jobs.LockedJob{}
	noError(c.T, s.Jobs.Retry(ctx, c.job("waits"), jobs.AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: 4 * time.Hour}))
	for _, id := range []string{"retried", "throttled", "released"} {
		c.heldRetries[id] = c.job(id)
	}
	for _, id := range []string{"redriven", "redriven_later"} {
		noError(c.T, s.Jobs.DeadLetter(ctx, c.job(id), jobs.AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "x"))
	}
	var err error
	c.plain, _, err = s.Bus.PutMessageQueue(ctx, bus.MessageQueue{Tenant: c.tenant, Name: "t/plain", Lock: time.Minute, MaxDeliveries: 5,
		DuplicateWindow: 10 * time.Minute, Idle: 5 * time.Hour}, 10)
	noError(c.T, err)
	c.sessions, _, err = s.Bus.PutMessageQueue(ctx, bus.MessageQueue{Tenant: c.tenant, Name: "t/sessions", Lock: time.Minute, MaxDeliveries: 5, RequiresSession: true}, 10)
	noError(c.T, err)
	c.send(c.plain, bus.MessageContent{MessageID: "abandoned"})
}

// whileAhead stores the rest, and changes what is there.
func (c *clockTrial) whileAhead() {
	ctx, s, now := c.Context(), c.s, c.right+ahead.Milliseconds()
	noError(c.T, s.Jobs.Retry(ctx, c.heldRetries["retried"], jobs.AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: 30 * time.Second}))
	noError(c.T, s.Jobs.Throttle(ctx, c.heldRetries["throttled"], jobs.AttemptRecord{Outcome: forebay.OutcomeThrottled, RetryDelay: 20 * time.Second}, ""))
	noError(c.T, s.Jobs.Release(ctx, c.heldRetries["released"], 0, ""))
	noError(c.T, s.Jobs.DeadLetter(ctx, c.job("set_aside"), jobs.AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "x"))
	for id, delay := range map[string]time.Duration{"redriven": 0, "redriven_later": time.Hour} {
		_, err := s.Jobs.Redrive(ctx, []jobs.Redrive{{Seq: c.number("SELECT seq FROM jobs WHERE id = '" + id + "'"), Delay: delay}}, audit.Act{Action: "redrive"})
		noError(c.T, err)
	}
	scheduled := time.UnixMilli(c.right).Add(3 * time.Hour)
	c.put("q", "ready", nil)
	c.put("q", "scheduled", &scheduled)
	for _, id := range []string{"budget_today", "budget_stale"} {
		c.put("q", id, nil)
	}
	day := admission.PeriodEnd(0, c.right)
	c.run(fmt.Sprintf("UPDATE messages SET waiting = 'budget', visible_at = %d WHERE seq = (SELECT seq FROM jobs WHERE id = 'budget_today')", day),
		fmt.Sprintf("UPDATE messages SET waiting = 'budget', visible_at = %d WHERE seq = (SELECT seq FROM jobs WHERE id = 'budget_stale')", day+24*3600_000))

	c.send(c.plain, bus.MessageContent{MessageID: "dead"})
	got := c.receive(2)
	noError(c.T, s.Bus.Abandon(ctx, c.plain, c.plain.Subqueue(false), queue.Lock{Seq: got[0].Seq, Token: got[0].Token}, nil))
	noError(c.T, s.Bus.DeadLetter(ctx, c.plain.Subqueue(false), queue.Lock{Seq: got[1].Seq, Token: got[1].Token}, bus.DeadLettering{Reason: "x"}, nil))
	c.receive(1)
	c.send(c.plain, bus.MessageContent{MessageID: "locked", TTL: 10 * time.Minute})
	c.held = c.receive(1)
	c.send(c.plain, bus.MessageContent{MessageID: "sent"}, bus.MessageContent{MessageID: "planned", ScheduledAt: &scheduled})
	c.send(c.sessions, bus.MessageContent{MessageID: "1", SessionID: "free"})
	if _, err := s.Bus.Sessions().Accept(ctx, c.sessions, "locked"); err != nil {
		c.Fatal(err)
	}

	start := func(id string, at int64) {
		noError(c.T, s.Orchestrations.CreateOrchestration(ctx, orchestrate.NewOrchestration{Tenant: c.tenant, ID: id, Execution: "first", Name: "fan", Event: orchestrate.Inline([]byte("start")), StartAt: at}))
	}
	start("timer", 0)
	_, err := s.Orchestrations.CompleteOrchestration(ctx, takeTurn(c.T, s), &orchestrate.OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: orchestrate.Inline([]byte("start")),
		Timers: []orchestrate.Timer{{At: now + 10_000, Event: orchestrate.Inline([]byte("fired"))}}, Activities: []orchestrate.NewActivity{{Name: "step", Event: orchestrate.Inline([]byte("do"))}}})
	noError(c.T, err)
	activities, err := s.Orchestrations.ClaimActivities(ctx, anyWork)
	noError(c.T, err)
	noError(c.T, s.Orchestrations.SettleActivity(ctx, &activities[0], orchestrate.ActivityOutcome{Outcome: orchestrate.ActivityRetried, Delay: 15 * time.Second}))
	start("held", 0)
	takeTurn(c.T, s)
	start("new", 0)
	start("later", scheduled.UnixMilli())
	_, err = s.Webhooks.CreateWebhook(ctx, webhook.Webhook{Tenant: c.tenant, TenantName: "t", Name: "w", URL: "https://x/", Concurrency: 1,
		Secrets: []webhook.WebhookSecret{{Secret: "s"}}}, audit.Act{Action: "create-webhook"})
	noError(c.T, err)
	c.run(fmt.Sprintf("UPDATE webhooks SET paused_until = %d, failing_since = %d", now+600_000, now))
}

// check looks that everything waits for as long as it was to, by the clock that is right.
func (c *clockTrial) check() {
	const hour = 3600_000
	visible := func(id string) string {
		return "SELECT m.visible_at FROM messages m JOIN jobs j ON j.seq = m.seq WHERE j.id = '" + id + "'"
	}
	message := func(column, id string) string {
		return "SELECT " + column + " FROM messages m JOIN bodies b ON b.seq = m.seq WHERE b.message_id = '" + id + "'"
	}
	turn := func(id string) string {
		return "SELECT t.visible_at FROM orchestration_items t JOIN orchestrations o ON o.no = t.instance WHERE o.id = '" + id + "'"
	}
	const (
		whenever = -100 * hour
		mending  = 2000 // at most, by the clock of the test
	)
	for _, e := range []struct {
		what, sql   string
		least, most int64 // since it is right again
	}{
		{"a retry from before", visible("waits"), 4 * hour, 4 * hour},
		{"a retry", visible("retried"), 30_000, 30_000},
		{"a throttled job", visible("throttled"), 20_000, 20_000},
		{"a released job", visible("released"), whenever, 0},
		{"a job that is set aside", visible("set_aside"), whenever, 0},
		{"a redriven job", visible("redriven"), whenever, 0},
		{"a job redriven for later", visible("redriven_later"), hour, hour},
		{"a new job", visible("ready"), whenever, 0},
		{"a scheduled job", visible("scheduled"), 3 * hour, 3 * hour},
		{"a job that waits for today's budget", visible("budget_today"), 24 * hour, 24 * hour},
		{"a job that waits for another day's", visible("budget_stale"), whenever, 0},
		{"an abandoned message", message("m.visible_at", "abandoned"), whenever, 60_000},
		{"a dead letter", message("m.visible_at", "dead"), whenever, 0},
		{"a new message", message("m.visible_at", "sent"), whenever, 0},
		{"a scheduled message", message("b.due_at", "planned"), 3 * hour, 3 * hour},
		{"a locked message", message("m.visible_at", "locked"), 59_000, 60_000},
		{"the end of a message", message("b.expires_at", "locked"), 600_000, 600_000},
		{"the look at a message", message("b.due_at", "locked"), whenever, 600_000},
		{"ids of messages", "SELECT max(forget_at) FROM message_ids", whenever, 600_000},
		{"an idle queue", "SELECT max(delete_at) FROM queues", 5 * hour, 5*hour + hour/12},
		{"a session", "SELECT visible_at FROM sessions WHERE id = 'free'", whenever, 0},
		{"a locked session", "SELECT locked_until FROM sessions WHERE id = 'locked'", 60_000, 300_000},
		{"a timer", "SELECT max(i.visible_at) FROM orchestration_inbox i JOIN orchestrations o ON o.no = i.instance WHERE o.id = 'timer'", 10_000, 10_000},
		{"the turn after it", turn("timer"), 10_000, 10_000},
		{"an activity", "SELECT visible_at FROM orchestration_activities", 15_000, 15_000},
		{"a turn under way", turn("held"), whenever, 300_000},
		{"a new instance", turn("new"), whenever, 0},
		{"a scheduled instance", turn("later"), 3 * hour, 3 * hour},
		{"a webhook's breaker", "SELECT paused_until FROM webhooks", whenever, 0},
		{"a webhook's failures", "SELECT failing_since FROM webhooks", whenever, 0},
	} {
		if at := c.number(e.sql) - c.right; at < e.least || at > e.most+mending {
			c.Errorf("%s: %v after now, expected %v to %v", e.what, time.Duration(at)*time.Millisecond,
				time.Duration(e.least)*time.Millisecond, time.Duration(e.most)*time.Millisecond)
		}
	}
	// Whoever gives a message back by now gives it to others.
	noError(c.T, c.s.Bus.Abandon(c.Context(), c.plain, c.plain.Subqueue(false), queue.Lock{Seq: c.held[0].Seq, Token: c.held[0].Token}, nil))
	if at := c.number(message("m.visible_at", "locked")) - c.right; at > mending {
		c.Errorf("a message that is given back then: %d ms", at)
	}
}

// mend mends twice: the second time there must be nothing that the first has left or made wrong.
func (c *clockTrial) mend() {
	for range 2 {
		if err := c.s.DB.MendClock(c.Context()); err != nil {
			c.Fatal(err)
		}
	}
}

// Of what a clock that was ahead has stored nothing waits longer than it was to, and what
// somebody has chosen stays.
func TestNothingWaitsForAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := everything.ClockSchema(dbtest.NewClockServer(t))
		s := c.Open(t)
		defer s.DB.Close()
		trial := &clockTrial{T: t, s: s, right: c.Now()}
		trial.before()
		c.Advance(ahead)
		trial.whileAhead()
		c.Advance(-ahead)
		trial.mend()
		trial.check()
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b := everything.Bubble(filepath.Join(t.TempDir(), "forebay.db"))
		var trial clockTrial
		synctest.Test(t, func(t *testing.T) {
			s := b.Open(t)
			defer s.DB.Close()
			trial = clockTrial{T: t, s: s, right: b.Now()}
			trial.before()
			<-time.After(ahead)
			trial.whileAhead()
		})
		synctest.Test(t, func(t *testing.T) { // whose clock begins where the other's began
			s := b.Reopen(t)
			defer s.DB.Close()
			if b.Now() != trial.right {
				t.Fatalf("it is %d, not %d", b.Now(), trial.right)
			}
			trial.T, trial.s = t, s
			synctest.Wait()
			trial.mend()
			trial.check()
		})
	})
}

// Records of a clock that was years ahead are not kept for years, and keep no others.
func TestRecordsOfTheFutureAreRemoved(t *testing.T) {
	everything.WithStores(t, func(t *testing.T, s *stores.Stores) {
		tenant := tenantNumber(t, s, "t")
		putJob(t, s, tenant, "q", jobs.NewJob{ID: "job_future", IdempotencyKey: "k", BodyHash: []byte("h")})
		noError(t, s.Jobs.Succeed(t.Context(), takeJob(t, s, "q"), jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1}))
		for _, id := range []string{"future", "past"} {
			noError(t, s.Orchestrations.CreateOrchestration(t.Context(), orchestrate.NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "fan", Event: orchestrate.Inline([]byte("start"))}))
			_, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeTurn(t, s), &orchestrate.OrchestrationResult{Status: forebay.OrchestrationCompleted, Events: 1, History: orchestrate.Inline([]byte("start"))})
			noError(t, err)
		}
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			const years = int64(10 * 365 * 24 * 3600_000)
			for _, sql := range []string{
				"UPDATE jobs SET created_at = created_at + ?", "UPDATE outcomes SET completed_at = completed_at + ?, started_at = completed_at + 1",
				"UPDATE idempotency SET created_at = created_at + ?",
				"UPDATE orchestrations SET created_at = created_at + ?, completed_at = created_at WHERE id = 'future'",
			} {
				if err := t.Prep(sql).Int(years).Exec(); err != nil {
					return struct{}{}, err
				}
			}
			if err := t.Prep("UPDATE orchestrations SET completed_at = completed_at + ? WHERE id = 'future'").Int(years).Exec(); err != nil {
				return struct{}{}, err
			}
			const old = int64(48 * 3600_000)
			return struct{}{}, t.Prep("UPDATE orchestrations SET created_at = created_at - ?1, completed_at = completed_at - ?1 WHERE id = 'past'").Int(old).Exec()
		})
		noError(t, err)
		if purged, _, err := s.Orchestrations.PurgeOrchestrations(t.Context(), s.DB.Now().Add(-24*time.Hour), 0); err != nil || purged != 1 {
			t.Errorf("%d instances behind one of the future were purged: %v", purged, err)
		}
		err = s.DB.MendClock(t.Context())
		noError(t, err)
		soon := s.DB.Now().Add(time.Hour)
		kept := retention.New(s.Jobs, nil)
		over := forebay.PurgeJobsRequest{Before: soon, Status: []forebay.Status{forebay.StatusSucceeded}, DryRun: true}
		if report, err := kept.PurgeJobs(t.Context(), "t", over, "test"); err != nil || report.Purged != 1 {
			t.Errorf("jobs: %+v %v", report, err)
		}
		keys := func() (n int64) {
			t.Helper()
			noError(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
				_, err := c.Prep("SELECT count(*) FROM idempotency").One(func(r driver.Row) { n = r.Int(0) })
				return err
			}))
			return n
		}
		before := keys()
		noError(t, kept.ForgetIdempotencyKeys(t.Context(), soon))
		if after := keys(); before != 1 || after != 0 {
			t.Errorf("%d keys, then %d", before, after)
		}
		if purged, _, err := s.Orchestrations.PurgeOrchestrations(t.Context(), soon, 0); err != nil || purged != 1 {
			t.Errorf("%d instances of the future were purged: %v", purged, err)
		}
	})
}
