package batches

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// How lines become jobs.
const (
	// maxWaiting is how many lines of an urgent batch are jobs that are not over, at most.
	maxWaiting = 1000
	// feedAtOnce and feedBytes bound what one transaction makes of lines.
	feedAtOnce = 100
	feedBytes  = 1 << 20
)

// How often a process looks at batches.
const (
	lookEvery   = 10 * time.Second // at least: a process that died has told nobody
	again       = 10 * time.Second // at a batch that goes on; its lines make it due before
	noRoom      = 2 * time.Second  // at one whose tenant may have no more jobs
	soon        = 500 * time.Millisecond
	unwell      = 5 * time.Second // after an error
	cancelGrace = time.Minute     // that lines have to end once their batch is cancelled
	atOnce      = 4               // batches that a process works on
	ofATenant   = 3               // of these, so that others need not wait for its large files
)

// Run works on batches until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	begun := places{taken: map[DueBatch]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, next, err := s.Store.Due(ctx)
		if err != nil && ctx.Err() == nil {
			next = unwell
			s.Logger.Warn("cannot look for batches", slog.Any("error", err))
		}
		for _, d := range due {
			if !begun.take(d) {
				continue
			}
			working.Go(func() {
				defer func() {
					if begun.leave(d) {
						s.lookAgain()
					}
				}()
				err := panics.Run(s.Logger, "working on a batch", func() error { return s.Work(ctx, d.No) })
				if err != nil && ctx.Err() == nil {
					s.Logger.Warn("cannot go on with a batch; trying again", slog.Any("error", err))
				}
			})
		}
		timer.Reset(max(next, leastPause))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// places are those of the batches that a process works on.
type places struct {
	mu     sync.Mutex
	taken  map[DueBatch]bool
	passed bool // a batch found none
}

// take takes a place for a batch. It reports whether there was one.
func (p *places) take(d DueBatch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := 0
	for other := range p.taken {
		if other.Tenant == d.Tenant {
			same++
		}
	}
	if p.taken[d] || len(p.taken) >= atOnce || same >= ofATenant {
		p.passed = true
		return false
	}
	p.taken[d] = true
	return true
}

// leave gives a place back. It reports whether a batch has found none meanwhile.
func (p *places) leave(d DueBatch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed := p.passed
	delete(p.taken, d)
	p.passed = false
	return passed
}

// leastPause keeps a process from looking all the time.
const leastPause = 20 * time.Millisecond

// Work does what is due of a batch, if no other process does.
func (s *Service) Work(ctx context.Context, no int64) error {
	b, ok, err := s.Store.Lease(ctx, no)
	if err != nil || !ok {
		return err
	}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		s.renew(held, cancel, &Batch{No: b.No, Lease: b.Lease})
	}()
	next, err := s.step(held, &b)
	cancel()
	<-renewed
	if errors.Is(err, errLeaseLost) {
		next, err = 0, nil // what has changed it has made it due
	}
	if err != nil {
		next = unwell
	}
	return errors.Join(err, s.Store.Release(context.WithoutCancel(ctx), &b, next))
}

// renew keeps a lease until ctx ends. A lease that is lost cancels the work.
func (s *Service) renew(ctx context.Context, lost func(), b *Batch) {
	tick := time.NewTicker(leaseFor / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.Store.Renew(ctx, b); errors.Is(err, errLeaseLost) {
			lost()
			return
		}
	}
}

// step does what is due of a batch, and returns when it is due again.
func (s *Service) step(ctx context.Context, b *Batch) (next time.Duration, err error) {
	now := s.Store.Now()
	switch {
	case b.State.Over():
		return s.Store.Forget(ctx, b, s.Keep)
	case b.State == Validating:
		return 0, s.validate(ctx, b)
	// Lines whose deadline ended them may be its last: then its window has closed too.
	case b.State == InProgress && b.Ended == b.Total && (b.Completed+b.Failed == b.Total || now.Before(b.ExpiresAt)):
		return 0, s.Store.Finalize(ctx, b, Completed)
	case b.State == InProgress && !now.Before(b.ExpiresAt):
		return 0, s.Store.Finalize(ctx, b, Expired)
	case b.State == InProgress:
		if p := urgency(b, now); p > b.Priority {
			if err := s.Store.Raise(ctx, b, p); err != nil {
				return 0, err
			}
		}
		if err := s.feed(ctx, b); err != nil {
			return 0, err
		}
		if b.Fed < b.Total && b.Fed-b.Ended <= waitingOf(b.Priority)/2 {
			return noRoom, nil
		}
		return min(again, b.ExpiresAt.Sub(now)), nil
	case b.Ended == b.Fed:
		return 0, s.finish(ctx, b)
	case b.State == Cancelling:
		voided, err := s.Store.CancelLines(ctx, b, b.CancellingAt != nil && now.Sub(*b.CancellingAt) >= cancelGrace)
		s.Jobs.Abort(voided)
		return soon, err
	}
	return soon, nil // the deadline ends its jobs
}

// validate reads the whole input and lets the lines run, or ends the batch as failed.
func (s *Service) validate(ctx context.Context, b *Batch) error {
	v := validation{endpoint: b.Endpoint, serves: s.Serves, maxLines: s.MaxLines}
	content, err := s.open(ctx, b, 0)
	if err == nil {
		defer content.Close()
		err = v.run(newReader(content, s.MaxLineBytes, 0, 0))
	}
	switch {
	case forebay.CodeOf(err) == forebay.CodeNotFound && err != nil:
		v.errors = []LineError{{Code: codeInvalid, Message: "The content of the input file is gone."}}
	case err != nil:
		return err
	}
	if len(v.errors) == 0 {
		return s.Store.Begin(ctx, b, v.model, v.total)
	}
	text, err := json.Marshal(v.errors)
	if err != nil {
		return err
	}
	return s.Store.Fail(ctx, b, text)
}

// open opens the input of a batch at an offset.
func (s *Service) open(ctx context.Context, b *Batch, offset int64) (io.ReadCloser, error) {
	f, err := s.Files.Used(ctx, b.InputFile)
	if err != nil {
		return nil, err
	}
	return s.Blobs.GetFrom(ctx, f.Blob, offset)
}

// lineAfter is the number of the last line that became a job. Blank lines have numbers too.
func (s *Service) lineAfter(ctx context.Context, b *Batch) (int64, error) {
	if b.Fed == 0 {
		return 0, nil
	}
	return s.Store.lastLine(ctx, b)
}

// feed makes jobs of lines, as long as too few wait.
func (s *Service) feed(ctx context.Context, b *Batch) error {
	most := waitingOf(b.Priority)
	room := min(most-(b.Fed-b.Ended), b.Total-b.Fed)
	if room <= 0 || b.Fed-b.Ended > most/2 {
		return nil
	}
	tenant, err := s.Store.TenantName(ctx, b.Tenant)
	if err != nil {
		return err
	}
	after, err := s.lineAfter(ctx, b)
	if err != nil {
		return err
	}
	content, err := s.open(ctx, b, b.FedBytes)
	if err != nil {
		return err
	}
	defer content.Close()
	if b.KeyID != "" {
		ctx = forebay.WithBudgetKey(ctx, b.KeyID)
	}
	r := newReader(content, s.MaxLineBytes, after, b.FedBytes)
	for room > 0 {
		n, err := s.feedSome(ctx, tenant, b, r, min(room, feedAtOnce))
		if err != nil || n == 0 {
			return err
		}
		room -= n
	}
	return nil
}

// feedSome makes jobs of the next lines, and returns of how many. None means that there is no
// room.
func (s *Service) feedSome(ctx context.Context, tenant string, b *Batch, r *reader, most int64) (n int64, err error) {
	most, done, err := s.takeJobs(ctx, tenant, most)
	if err != nil || most == 0 {
		return 0, err
	}
	defer done()
	var lines []Line
	var reqs []forebay.SubmitRequest
	for size := 0; int64(len(lines)) < most && size < feedBytes; {
		if err := r.next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		q, wrong := r.parse(b.Endpoint)
		if wrong != nil { // it was right when it was validated
			return 0, forebay.Errorf(forebay.CodeInternal, "line %d of batch %s has changed: %s", r.no, b.ID, wrong.Message)
		}
		size += len(q.body)
		lines = append(lines, Line{Number: r.no, CustomID: q.customID, End: r.end})
		priority, id := b.Priority, b.ID
		reqs = append(reqs, forebay.SubmitRequest{Task: s.Task(b.Endpoint, b.Model), Input: []byte(q.body), Queue: s.Queue,
			Priority: &priority, Deadline: &b.ExpiresAt, CorrelationID: &id})
	}
	if len(lines) == 0 {
		return 0, forebay.Errorf(forebay.CodeInternal, "the input of batch %s is shorter than it was", b.ID)
	}
	list, err := s.Jobs.NewJobs(ctx, tenant, reqs)
	if err != nil {
		return 0, err
	}
	for i := range lines {
		lines[i].Job = list[i]
	}
	return int64(len(lines)), s.Store.Feed(ctx, b, lines)
}

// takeJobs asks the tenant's limit of waiting jobs for up to so many, and returns how many it
// allows. A line that meets the limit waits.
func (s *Service) takeJobs(ctx context.Context, tenant string, most int64) (n int64, done func(), err error) {
	for n = most; n > 0; n /= 2 {
		done, err = s.Limits.Take(ctx, tenant, forebay.LimitWaitingJobs, n)
		if forebay.CodeOf(err) != forebay.CodeTenantLimit || err == nil {
			return n, done, err
		}
	}
	return 0, nil, nil
}

// Priorities of lines.
const (
	lowest  = 1
	raised  = 3
	level   = forebay.DefaultPriority // from here on they yield to nobody
	highest = 8
)

// waitingOf is how many lines of a batch are jobs that are not over, at most. When there are half
// as many or fewer, the next ones follow. Jobs that wait for long go in the order in which they
// came, whatever their priority. So the fewer of a batch wait, the smaller is its part.
func waitingOf(priority int) int64 {
	switch {
	case priority >= level:
		return maxWaiting
	case priority >= raised:
		return maxWaiting / 2
	}
	return maxWaiting / 4
}

// urgency is the priority that lines of a batch should have: by what is left of it, the time left
// and the pace so far.
func urgency(b *Batch, now time.Time) int {
	if b.InProgressAt == nil {
		return lowest
	}
	spent, left := now.Sub(*b.InProgressAt), b.ExpiresAt.Sub(now)
	switch {
	case left <= 0:
		return highest
	case spent < (spent+left)/10: // the pace tells nothing yet
		return lowest
	}
	// The share of the time left that the rest will take. Without any pace yet, time that passes
	// counts.
	share := 2 * float64(spent) / float64(spent+left)
	if b.Ended > 0 {
		share = float64(b.Total-b.Ended) / float64(b.Ended) * float64(spent) / float64(left)
	}
	switch {
	case share >= 1:
		return highest
	case share >= 0.75:
		return level
	case share >= 0.5:
		return raised
	}
	return lowest
}
