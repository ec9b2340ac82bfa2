//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
)

// followToTheEnd reads a job's events as they come and resumes where the stream broke. Their
// numbers count up by one, whatever happens to the server.
func (c *crash) followToTheEnd(j *crashJob) {
	err := c.persist(c.Context(), func(s servertest.Remote) error {
		err := s.Follow(c.Context(), j.id, int64(len(j.events)), func(e forebay.Event) {
			if j.events = append(j.events, e); e.Number != int64(len(j.events)) {
				c.Errorf("%s: event %d came after event %d", j.id, e.Number, len(j.events)-1)
			}
		})
		if n := len(j.events); n > 0 && j.events[n-1].Status.Terminal() {
			return nil
		}
		if err == nil {
			err = servertest.ErrNotYet // the server stopped
		}
		return err
	})
	if err != nil && c.Context().Err() == nil {
		c.Errorf("follow %s: %s", j.id, err)
	}
}

// watch looks at a sample of the jobs again and again, to see that nothing goes backwards.
func (c *crash) watch(ctx context.Context) {
	for i := 0; sleep.For(ctx, 10*time.Millisecond) == nil; i++ {
		c.mu.Lock()
		sample := c.jobs[:len(c.jobs):len(c.jobs)]
		c.mu.Unlock()
		if len(sample) == 0 {
			continue
		}
		// The newest change most; the older must not change any more.
		at := len(sample) - 1 - i*7%min(len(sample), 60)
		if i%4 == 0 {
			at = i / 4 % len(sample)
		}
		c.look(ctx, sample[at])
	}
}

// look reads a job and compares it with what was seen before.
func (c *crash) look(ctx context.Context, j *crashJob) {
	s, err := c.server(ctx)
	if err != nil {
		return
	}
	now, err := s.Job(ctx, j.id)
	var refused *servertest.Problem
	switch {
	case errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable:
		c.Errorf("the acknowledged job %s (%s) cannot be read: %s", j.id, j.key, err)
		return
	case err != nil:
		return
	}
	c.looks.Add(1)
	c.compare(j, now)
}

func (c *crash) compare(j *crashJob, now forebay.Job) {
	before := j.seen
	j.seen = now
	if before.ID == "" {
		return
	}
	if before.Status.Terminal() && (now.Status != before.Status || !now.CompletedAt.Equal(*before.CompletedAt) || string(now.Result) != string(before.Result)) {
		c.Errorf("%s was %s at %v with %.60s, and is %s at %v with %.60s", j.id, before.Status, before.CompletedAt, before.Result, now.Status, now.CompletedAt, now.Result)
	}
	if now.Attempt < before.Attempt || now.Generation != before.Generation {
		c.Errorf("%s went back from attempt %d of generation %d to %d of %d", j.id, before.Attempt, before.Generation, now.Attempt, now.Generation)
	}
	if before.StartedAt != nil && (now.StartedAt == nil || !now.StartedAt.Equal(*before.StartedAt) || now.Status == forebay.StatusScheduled) {
		c.Errorf("%s had started at %v, and now is %s and started at %v", j.id, before.StartedAt, now.Status, now.StartedAt)
	}
}

// awaitAll waits until every acknowledged job is terminal.
func (c *crash) awaitAll() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	c.each(func(j *crashJob) error {
		return c.persist(ctx, func(s servertest.Remote) error {
			_, err := s.Await(ctx, j.id)
			return err
		})
	})
}

// each does something for every job, several at a time.
func (c *crash) each(do func(*crashJob) error) {
	c.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, j := range c.jobs {
		group.Go(func() error {
			if err := do(j); err != nil {
				return fmt.Errorf("%s (%s): %w", j.id, j.key, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		c.Error(err)
	}
}

// checkAll looks at every job, its attempts and its events, and at what is left in the queue.
func (c *crash) checkAll() {
	c.Helper()
	s, err := c.server(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	if len(c.jobs) != c.total {
		c.Errorf("%d of %d jobs were acknowledged", len(c.jobs), c.total)
	}
	listed, err := s.List(c.Context())
	if err != nil || len(listed) != len(c.jobs) {
		c.Errorf("%d jobs are listed, %d were acknowledged: %v", len(listed), len(c.jobs), err)
	}
	c.each(func(j *crashJob) error { return c.check(s, j) })
	c.checkSessions(listed)
	c.checkAudit(s)
	q, err := s.Queue(c.Context())
	if err != nil || q.Active+q.Scheduled+q.Locked+q.Retrying+q.DeadLetter+q.Quarantine != 0 {
		c.Errorf("left in the queue: %+v %v", q, err)
	}
}

// checkAudit checks that the audit log is whole and has one entry for each event that it is to
// have.
func (c *crash) checkAudit(s servertest.Remote) {
	c.Helper()
	api, err := client.New(client.Options{BaseURL: s.URL})
	if err != nil {
		c.Fatal(err)
	}
	entries := map[string]int{} // by job
	for e, err := range api.Audit(c.Context(), forebay.AuditFilter{Action: string(crashAudited)}, 0) {
		if err != nil {
			c.Fatal(err)
		}
		entries[e.Target]++
	}
	if len(entries) == 0 {
		c.Error("the audit log has no events of jobs")
	}
	c.each(func(j *crashJob) error {
		events, err := s.Events(c.Context(), j.id)
		if err != nil {
			return err
		}
		n := 0
		for _, e := range events {
			if e.Type == crashAudited {
				n++
			}
		}
		if n != entries[j.id] {
			return fmt.Errorf("the audit log has %d of %d events", entries[j.id], n)
		}
		return nil
	})
	if v, err := api.VerifyAudit(c.Context(), ""); err != nil || !v.Intact {
		c.Errorf("the audit log: %+v %+v %v", v, v.Broken, err)
	}
}

// checkPeak checks that no process made more calls at once than it has places for.
func (c *crash) checkPeak(processes int) {
	c.Helper()
	// After a kill the calls of the old process may still be on their way out.
	if peak := c.model.Stats().PeakInFlight; peak > 2*processes*crashLanes {
		c.Errorf("%d calls at once; both lanes of %d processes have %d places", peak, processes, processes*crashLanes)
	}
}

// checkSessions checks that the jobs of a session ran one after the other, in the order in which
// they were stored. The newest is listed first.
func (c *crash) checkSessions(listed []forebay.Job) {
	c.Helper()
	began := map[string]time.Time{}
	for _, j := range c.jobs {
		began[j.id] = j.began
	}
	before, sessions := map[string]forebay.Job{}, 0
	for _, job := range slices.Backward(listed) {
		if job.SessionID == nil || job.CompletedAt == nil {
			continue
		}
		if last, ok := before[*job.SessionID]; ok && began[job.ID].Before(*last.CompletedAt) {
			c.Errorf("%s of %s began at %v, before %s had ended at %v", job.ID, *job.SessionID, began[job.ID], last.ID, last.CompletedAt)
		} else if ok {
			sessions++
		}
		before[*job.SessionID] = job
	}
	if sessions == 0 {
		c.Error("no session had a second job")
	}
}

func (c *crash) check(s servertest.Remote, j *crashJob) error {
	job, err := s.Job(c.Context(), j.id)
	if err != nil {
		return err
	}
	c.compare(j, job)
	if job.Status != forebay.StatusSucceeded || job.Generation != 1 {
		return fmt.Errorf("is %s, generation %d: %+v", job.Status, job.Generation, job.Error)
	}
	attempts, err := s.Attempts(c.Context(), j.id)
	if err != nil {
		return err
	}
	if len(attempts) > 0 {
		j.began = attempts[0].StartedAt
	}
	if err := checkAttempts(attempts, job.Attempt, c.model.Calls(j.key)); err != nil {
		return err
	}
	var result struct{ Text string }
	if err := s.Get(c.Context(), job.Links.Result, &result); err != nil {
		return err
	}
	var call int
	var to string
	if _, err := fmt.Sscanf(result.Text, "answer %d to %s", &call, &to); err != nil || to != j.key || call > len(attempts) {
		return fmt.Errorf("its result is %.60q, after %d attempts", result.Text, len(attempts))
	}
	events, err := s.Events(c.Context(), j.id)
	if err != nil {
		return err
	}
	if j.events != nil && !slices.EqualFunc(j.events, events, func(a, b forebay.Event) bool { return a.Type == b.Type && a.At.Equal(b.At) }) {
		return fmt.Errorf("its events were seen as %+v and are %+v", j.events, events)
	}
	return checkEvents(events)
}

// checkAttempts compares the attempts with the calls that the model saw. Each call has a row. Each
// row whose call was answered has a call.
func checkAttempts(attempts []forebay.Attempt, charged, calls int) error {
	counts := map[forebay.Outcome]int{}
	for i, a := range attempts {
		counts[a.Outcome]++
		if a.Number != i+1 || a.Generation != 1 || a.FinishedAt.Before(a.StartedAt) {
			return fmt.Errorf("attempt %d is numbered %d/%d, from %v to %v", i+1, a.Generation, a.Number, a.StartedAt, a.FinishedAt)
		}
	}
	answered := counts[forebay.OutcomeSucceeded] + counts[forebay.OutcomeRetried] + counts[forebay.OutcomeThrottled]
	switch {
	case counts[forebay.OutcomeSucceeded] != 1 || attempts[len(attempts)-1].Outcome != forebay.OutcomeSucceeded:
		return fmt.Errorf("its attempts ended as %v, not once and last in success", servertest.Outcomes(attempts))
	case answered+counts[forebay.OutcomeLost] != len(attempts):
		return fmt.Errorf("its attempts ended as %v", servertest.Outcomes(attempts))
	// A failed probe is not charged.
	case charged < counts[forebay.OutcomeSucceeded], charged > counts[forebay.OutcomeSucceeded]+counts[forebay.OutcomeRetried]:
		return fmt.Errorf("%d attempts were charged, of %v", charged, servertest.Outcomes(attempts))
	case calls < answered || calls > len(attempts):
		return fmt.Errorf("the model was called %d times, the attempts say %v", calls, servertest.Outcomes(attempts))
	}
	return nil
}

// checkEvents checks that a job's events count up from acceptance to the one that ends it.
func checkEvents(events []forebay.Event) error {
	for i, e := range events {
		last := i == len(events)-1
		switch {
		case e.Number != int64(i+1):
			return fmt.Errorf("event %d is numbered %d", i+1, e.Number)
		case (i == 0) != (e.Type == forebay.EventAccepted):
			return fmt.Errorf("event %d is %s", i+1, e.Type)
		case last != (e.Type == forebay.EventSucceeded) || last != e.Status.Terminal():
			return fmt.Errorf("event %d of %d is %s with the status %s", i+1, len(events), e.Type, e.Status)
		}
	}
	if len(events) < 3 {
		return fmt.Errorf("only %d events", len(events))
	}
	return nil
}

func (c *crash) summary(disturbances int) {
	c.Helper()
	stats := c.model.Stats()
	if stats.Gone == 0 || c.lost.Load() == 0 {
		c.Errorf("the disturbances hit %d calls and %d requests: they show nothing", stats.Gone, c.lost.Load())
	}
	c.Logf("%d jobs, %d disturbances, %d calls, %d cut off, peak %d, %d requests lost, %d looks, %s",
		len(c.jobs), disturbances, stats.Calls, stats.Gone, stats.PeakInFlight, c.lost.Load(), c.looks.Load(), time.Since(c.began).Round(time.Second))
}
