package documents

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// concurrencyLimit bounds how many documents are processed at once, for all tenants and for each.
// No tenant has all slots, so another's document finds one soon. A free slot goes to the waiting
// tenant that has the fewest, and among those to the one that has waited longest.
type concurrencyLimit struct {
	mu         sync.Mutex
	free       int
	each       int // slots of a tenant, at most
	maxWaiting int // documents of a tenant that wait, at most
	tenants    map[string]*tenantUse
	waiting    []*waitingDocument // in the order in which they came
}

// tenantUse is what a tenant has and waits for.
type tenantUse struct {
	taken, waiting int
	again          time.Time // when the latest document that was sent away is to be tried again
}

// waitingDocument is a document that waits for a slot.
type waitingDocument struct {
	tenant string
	ready  chan struct{} // closed when it has a slot
}

const (
	// maxWaitingToRead is how many documents of a tenant may wait to be read. Each holds one of
	// the queue's workers.
	maxWaitingToRead = 8
	// maxWaitingToFetch is how many may wait to be fetched from a source, each for fetchingWait
	// at most.
	maxWaitingToFetch = 64
	fetchingWait      = 30 * time.Second
	fetchingEach      = 1 // of a tenant at once: what they write slows the database down
	fetchingAll       = 3
	// Documents that are sent away are tried again after a while, one after another.
	sentAway    = 2 * time.Second
	sentApart   = 100 * time.Millisecond
	maxSentAway = time.Minute
)

func newConcurrencyLimit(all, each, line int) *concurrencyLimit {
	return &concurrencyLimit{free: all, each: each, maxWaiting: line, tenants: map[string]*tenantUse{}}
}

// take waits for a slot, which leave frees. If too many documents of the tenant wait, the
// document is sent away with a *forebay.TaskError.
func (p *concurrencyLimit) take(ctx context.Context, tenant string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil {
		t = &tenantUse{}
		p.tenants[tenant] = t
	}
	if p.free > 0 && t.taken < p.each && t.waiting == 0 {
		p.give(tenant)
		return func() { p.leave(tenant) }, nil
	}
	if t.waiting >= p.maxWaiting {
		return nil, t.sendAway(time.Now())
	}
	d := &waitingDocument{tenant, make(chan struct{})}
	p.waiting = append(p.waiting, d)
	t.waiting++
	p.mu.Unlock()
	select {
	case <-d.ready:
	case <-ctx.Done():
	}
	p.mu.Lock()
	if i := slices.Index(p.waiting, d); i >= 0 { // ctx was first
		p.waiting = slices.Delete(p.waiting, i, i+1)
		t.waiting--
		p.forget(tenant)
		return nil, ctx.Err()
	}
	return func() { p.leave(tenant) }, nil
}

// sendAway returns the error that says when to try the document again.
func (t *tenantUse) sendAway(now time.Time) error {
	earliest := now.Add(sentAway)
	if t.again = t.again.Add(sentApart); t.again.Before(earliest) {
		t.again = earliest
	}
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: "documents_busy", Message: "other documents of the tenant are read first",
		Uncalled: true, Waiting: forebay.WaitWorker, RetryAfter: min(t.again.Sub(now), maxSentAway)}
}

func (p *concurrencyLimit) give(tenant string) {
	p.free--
	p.tenants[tenant].taken++
}

// leave frees a slot and gives all free slots to those who wait.
func (p *concurrencyLimit) leave(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	p.tenants[tenant].taken--
	for p.free > 0 {
		next := -1
		for i, d := range p.waiting {
			taken := p.tenants[d.tenant].taken
			if taken < p.each && (next < 0 || taken < p.tenants[p.waiting[next].tenant].taken) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		d := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.tenants[d.tenant].waiting--
		p.give(d.tenant)
		close(d.ready)
	}
	p.forget(tenant)
}

// forget drops the record of a tenant that neither has nor waits for slots.
func (p *concurrencyLimit) forget(tenant string) {
	if t := p.tenants[tenant]; t.taken == 0 && t.waiting == 0 {
		delete(p.tenants, tenant)
	}
}
