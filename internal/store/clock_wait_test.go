package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// clockTrial is one of each thing that waits, stored by a clock that is ahead.
type clockTrial struct {
	*testing.T
	s           *Store
	right       int64 // milliseconds: the time by the clock before it was ahead, and after
	tenant      int64
	plain       MessageQueue
	sessions    MessageQueue
	held        []Message // under lock
	heldRetries map[string]*Delivery
}

func (c *clockTrial) job(id string) *Delivery {
	c.Helper()
	queue := queueOf(c.T, c.s, id)
	put(c.T, c.s, c.tenant, queue, 1, func(j *NewJob) { j.ID = id })
	return &take(c.T, c.s, SubqueueOf(queue, SubqueueMain), 1, time.Minute)[0]
}

func (c *clockTrial) run(statements ...string) {
	c.Helper()
	_, err := transact(c.Context(), c.s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		for _, sql := range statements {
			if err := t.prep(sql).exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	mustDo(c.T, err)
}

func (c *clockTrial) number(sql string) (n int64) {
	c.Helper()
	mustDo(c.T, c.s.DB.read(c.Context(), func(conn conn) error {
		found, err := conn.prep(sql).one(func(r row) { n = r.int(0) })
		if err == nil && !found {
			err = errors.New("nothing is found by " + sql)
		}
		return err
	}))
	return n
}

func (c *clockTrial) receive(n int) []Message {
	c.Helper()
	got, err := c.s.Bus.Receive(c.Context(), ReceiveRequest{Queue: c.plain, Max: n, MaxBytes: 1 << 20})
	if err != nil || len(got) != n {
		c.Fatalf("received %d messages, expected %d: %v", len(got), n, err)
	}
	return got
}

// before stores what is there when the clock jumps ahead.
func (c *clockTrial) before() {
	ctx, s := c.Context(), c.s
	c.tenant, c.heldRetries = tenantOf(c.T, s, "t"), map[string]*Delivery{}
	mustDo(c.T, s.Jobs.Retry(ctx, c.job("waits"), AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: 4 * time.Hour}))
	for _, id := range []string{"retried", "throttled", "released"} {
		c.heldRetries[id] = c.job(id)
	}
	for _, id := range []string{"redriven", "redriven_later"} {
		mustDo(c.T, s.Jobs.SetAside(ctx, c.job(id), AttemptRecord{Outcome: forebay.OutcomeFailed}, SubqueueDeadLetter, "x"))
	}
	var err error
	c.plain, _, err = s.Bus.PutMessageQueue(ctx, MessageQueue{Tenant: c.tenant, Name: "t/plain", Lock: time.Minute, MaxDeliveries: 5,
		DuplicateWindow: 10 * time.Minute, Idle: 5 * time.Hour}, 10)
	mustDo(c.T, err)
	c.sessions, _, err = s.Bus.PutMessageQueue(ctx, MessageQueue{Tenant: c.tenant, Name: "t/sessions", Lock: time.Minute, MaxDeliveries: 5, RequiresSession: true}, 10)
	mustDo(c.T, err)
	sendTo(c.T, s, c.plain, MessageContent{MessageID: "abandoned"})
}

// whileAhead stores the rest, and changes what is there.
func (c *clockTrial) whileAhead() {
	ctx, s, now := c.Context(), c.s, c.right+ahead.Milliseconds()
	mustDo(c.T, s.Jobs.Retry(ctx, c.heldRetries["retried"], AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: 30 * time.Second}))
	mustDo(c.T, s.Jobs.Throttle(ctx, c.heldRetries["throttled"], AttemptRecord{Outcome: forebay.OutcomeThrottled, RetryDelay: 20 * time.Second}, ""))
	mustDo(c.T, s.Jobs.Release(ctx, c.heldRetries["released"], 0, ""))
	mustDo(c.T, s.Jobs.SetAside(ctx, c.job("set_aside"), AttemptRecord{Outcome: forebay.OutcomeFailed}, SubqueueDeadLetter, "x"))
	for id, delay := range map[string]time.Duration{"redriven": 0, "redriven_later": time.Hour} {
		_, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: c.number("SELECT seq FROM jobs WHERE id = '" + id + "'"), Delay: delay}}, Audit{Action: "redrive"})
		mustDo(c.T, err)
	}
	scheduled := time.UnixMilli(c.right).Add(3 * time.Hour)
	put(c.T, s, c.tenant, queueOf(c.T, s, "q"), 1, func(j *NewJob) { j.ID = "ready" })
	put(c.T, s, c.tenant, queueOf(c.T, s, "q"), 1, func(j *NewJob) { j.ID, j.ScheduledAt = "scheduled", &scheduled })
	for _, id := range []string{"budget_today", "budget_stale"} {
		put(c.T, s, c.tenant, queueOf(c.T, s, "q"), 1, func(j *NewJob) { j.ID = id })
	}
	day := periodEnd(0, c.right)
	c.run(fmt.Sprintf("UPDATE messages SET waiting = 'budget', visible = %d WHERE seq = (SELECT seq FROM jobs WHERE id = 'budget_today')", day),
		fmt.Sprintf("UPDATE messages SET waiting = 'budget', visible = %d WHERE seq = (SELECT seq FROM jobs WHERE id = 'budget_stale')", day+24*3600_000))

	sendTo(c.T, s, c.plain, MessageContent{MessageID: "dead"})
	got := c.receive(2)
	mustDo(c.T, s.Bus.Abandon(ctx, c.plain, c.plain.Subqueue(false), Lock{got[0].Seq, got[0].Token}, nil))
	mustDo(c.T, s.Bus.DeadLetter(ctx, c.plain.Subqueue(false), Lock{got[1].Seq, got[1].Token}, DeadLettering{Reason: "x"}, nil))
	c.receive(1)
	sendTo(c.T, s, c.plain, MessageContent{MessageID: "locked", TTL: 10 * time.Minute})
	c.held = c.receive(1)
	sendTo(c.T, s, c.plain, MessageContent{MessageID: "sent"}, MessageContent{MessageID: "planned", ScheduledAt: &scheduled})
	sendTo(c.T, s, c.sessions, MessageContent{MessageID: "1", SessionID: "free"})
	if _, err := s.Bus.AcceptSession(ctx, c.sessions, "locked"); err != nil {
		c.Fatal(err)
	}

	start := func(id string, at int64) {
		mustDo(c.T, s.Orchestrations.CreateOrchestration(ctx, NewOrchestration{Tenant: c.tenant, ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start")), StartAt: at}))
	}
	start("timer", 0)
	_, err := s.Orchestrations.CompleteTurn(ctx, takeTurn(c.T, s), &TurnResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("start")),
		Timers: []Timer{{At: now + 10_000, Event: Inline([]byte("fired"))}}, Activities: []NewActivity{{Name: "step", Event: Inline([]byte("do"))}}})
	mustDo(c.T, err)
	activities, err := s.Orchestrations.ClaimActivities(ctx, anyWork(1))
	mustDo(c.T, err)
	mustDo(c.T, s.Orchestrations.SettleActivity(ctx, &activities[0], ActivityOutcome{Outcome: ActivityRetried, Delay: 15 * time.Second}))
	start("held", 0)
	takeTurn(c.T, s)
	start("new", 0)
	start("later", scheduled.UnixMilli())
	_, err = s.Webhooks.CreateWebhook(ctx, Webhook{Tenant: c.tenant, TenantName: "t", Name: "w", URL: "https://x/", Concurrency: 1,
		Secrets: []WebhookSecret{{Secret: "s"}}}, Audit{Action: "create-webhook"})
	mustDo(c.T, err)
	c.run(fmt.Sprintf("UPDATE webhooks SET paused_until = %d, failing_since = %d", now+600_000, now))
}

// check looks that everything waits for as long as it was to, by the clock that is right.
func (c *clockTrial) check() {
	const hour = 3600_000
	visible := func(id string) string {
		return "SELECT m.visible FROM messages m JOIN jobs j ON j.seq = m.seq WHERE j.id = '" + id + "'"
	}
	message := func(column, id string) string {
		return "SELECT " + column + " FROM messages m JOIN bodies b ON b.seq = m.seq WHERE b.message_id = '" + id + "'"
	}
	turn := func(id string) string {
		return "SELECT t.visible FROM orchestration_turns t JOIN orchestrations o ON o.no = t.instance WHERE o.id = '" + id + "'"
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
		{"an abandoned message", message("m.visible", "abandoned"), whenever, 60_000},
		{"a dead letter", message("m.visible", "dead"), whenever, 0},
		{"a new message", message("m.visible", "sent"), whenever, 0},
		{"a scheduled message", message("b.due_at", "planned"), 3 * hour, 3 * hour},
		{"a locked message", message("m.visible", "locked"), 59_000, 60_000},
		{"the end of a message", message("b.expires_at", "locked"), 600_000, 600_000},
		{"the look at a message", message("b.due_at", "locked"), whenever, 600_000},
		{"ids of messages", "SELECT max(forget_at) FROM message_ids", whenever, 600_000},
		{"an idle queue", "SELECT max(delete_at) FROM queues", 5 * hour, 5*hour + hour/12},
		{"a session", "SELECT visible FROM sessions WHERE id = 'free'", whenever, 0},
		{"a locked session", "SELECT locked_until FROM sessions WHERE id = 'locked'", 60_000, 300_000},
		{"a timer", "SELECT max(i.visible) FROM orchestration_inbox i JOIN orchestrations o ON o.no = i.instance WHERE o.id = 'timer'", 10_000, 10_000},
		{"the turn after it", turn("timer"), 10_000, 10_000},
		{"an activity", "SELECT visible FROM orchestration_activities", 15_000, 15_000},
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
	mustDo(c.T, c.s.Bus.Abandon(c.Context(), c.plain, c.plain.Subqueue(false), Lock{c.held[0].Seq, c.held[0].Token}, nil))
	if at := c.number(message("m.visible", "locked")) - c.right; at > mending {
		c.Errorf("a message that is given back then: %d ms", at)
	}
}

// mend mends twice: the second time there must be nothing that the first has left or made wrong.
func (c *clockTrial) mend() {
	for range 2 {
		if err := c.s.DB.mendClock(c.Context()); err != nil {
			c.Fatal(err)
		}
	}
}

// Of what a clock that was ahead has stored nothing waits longer than it was to, and what somebody has chosen stays.
func TestNothingWaitsForAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := &clockSchema{server: newClockServer(t), name: "waits"}
		s := c.open(t)
		defer s.DB.Close()
		trial := &clockTrial{T: t, s: s, right: c.at}
		trial.before()
		c.advance(ahead)
		trial.whileAhead()
		c.advance(-ahead)
		trial.mend()
		trial.check()
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b := bubble{filepath.Join(t.TempDir(), "forebay.db")}
		var trial clockTrial
		synctest.Test(t, func(t *testing.T) {
			s := b.open(t)
			defer s.DB.Close()
			trial = clockTrial{T: t, s: s, right: b.now()}
			trial.before()
			<-time.After(ahead)
			trial.whileAhead()
		})
		synctest.Test(t, func(t *testing.T) { // whose clock begins where the other's began
			s := b.reopen(t)
			defer s.DB.Close()
			if b.now() != trial.right {
				t.Fatalf("it is %d, not %d", b.now(), trial.right)
			}
			trial.T, trial.s = t, s
			synctest.Wait()
			trial.mend()
			trial.check()
		})
	})
}
