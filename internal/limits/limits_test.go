package limits

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

// truth is what is really there.
type truth struct {
	mu     sync.Mutex
	n      int64
	counts int
	limits forebay.TenantLimits
	shared bool
	others atomic.Int64  // processes beside this one
	fails  error         // of each count
	takes  time.Duration // each count; only by a clock that does not really run
}

func (s *truth) EnsureTenant(context.Context, string) (int64, error) { return 1, nil }
func (s *truth) Shared() bool                                        { return s.shared }
func (s *truth) CountServers(context.Context) (int64, error)         { return 1 + s.others.Load(), nil }
func (s *truth) TenantLimits(context.Context, int64) (forebay.TenantLimits, error) {
	return s.limits, nil
}
func (s *truth) LimitUsed(_ context.Context, _ int64, _ forebay.LimitName, most int64) (int64, error) {
	if s.takes > 0 {
		<-time.After(s.takes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts++
	return min(s.n, most), s.fails
}

// change adds n to what is there and returns that. Counts may be under way.
func (s *truth) change(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = max(0, s.n+n)
	return s.n
}

// Under any changes one process never exceeds a limit, two exceed it by at most a part, and
// neither refuses below it.
func TestTakeRefusesOnlyAtTheLimit(t *testing.T) {
	// By a clock that stands still: where counting takes long, a count refuses for a while.
	synctest.Test(t, func(t *testing.T) {
		// As an interface: rapid asks a *testing.T for its deadline, which a bubble forbids.
		rapid.Check(struct{ rapid.TB }{t}, takeAtTheLimit)
	})
}

func takeAtTheLimit(t *rapid.T) {
	most := rapid.Int64Range(1, 300).Draw(t, "most")
	s := &truth{limits: forebay.TenantLimits{WaitingJobs: &most}, shared: rapid.Bool().Draw(t, "shared")}
	processes := []*Meter{New(s, forebay.TenantLimits{}), New(s, forebay.TenantLimits{})}
	if !s.shared {
		processes = processes[:1]
	}
	over := most / shares * int64(len(processes)-1)
	for range 60 {
		m := rapid.SampledFrom(processes).Draw(t, "process")
		n := rapid.Int64Range(1, 30).Draw(t, "n")
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0: // jobs end, by themselves or purged
			s.change(-n)
		case 1: // a restart
			for i := range processes {
				if processes[i] == m {
					processes[i] = New(s, forebay.TenantLimits{})
				}
			}
		default:
			done, err := m.Take(context.Background(), "acme", forebay.LimitWaitingJobs, n)
			there := s.change(0)
			if there+n <= most != (err == nil) && (err != nil || there+n > most+over) {
				t.Fatalf("%d of %d are there and %d more come: %v", there, most, n, err)
			}
			if err == nil {
				s.change(n)
			} else if forebay.CodeOf(err) != forebay.CodeTenantLimit {
				t.Fatal(err)
			}
			done()
		}
	}
}

// Far from the limit requests are not counted one by one.
func TestTakeCountsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &truth{}
		m := New(s, forebay.TenantLimits{})
		for range 10_000 {
			done, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, 1)
			if err != nil {
				t.Fatal(err)
			}
			s.n++
			done()
		}
		if s.counts != 1 {
			t.Fatalf("%d counts", s.counts)
		}
	})
}

// Far from the limit long counts are seldom, and nobody waits for any but the first.
func TestLongCountsAreSeldomAndBesideRequests(t *testing.T) {
	for name, c := range map[string]struct {
		used, stored int64 // at first, and by each request
		shared       bool
		least, most  int // counts in 100 s
	}{
		"far from the limit":                     {used: 1000, least: 2, most: 3},
		"near the limit":                         {used: 60_000, least: 18, most: 21},
		"what a process may have is used up":     {used: 1000, stored: 1, shared: true, least: 2, most: 3},
		"what was left is stored by this tenant": {used: 1000, stored: 80, least: 3, most: 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				most := int64(100_000)
				s := &truth{n: c.used, takes: 100 * time.Millisecond, limits: forebay.TenantLimits{WaitingJobs: &most}, shared: c.shared}
				m := New(s, forebay.TenantLimits{})
				defer m.Close()
				for i := range 1000 {
					began := time.Now()
					done, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, max(1, c.stored))
					if waited := time.Since(began); err != nil || i > 0 && waited > 0 {
						t.Fatalf("request %d waited %s: %v", i, waited, err)
					}
					s.change(c.stored)
					done()
					<-time.After(100 * time.Millisecond)
				}
				if s.mu.Lock(); s.counts < c.least || s.counts > c.most {
					t.Errorf("%d counts, not %d to %d", s.counts, c.least, c.most)
				}
				s.mu.Unlock()
			})
		})
	}
}

// The first count may take long, as after a start where there is much. Requests wait a second from
// its beginning, and later ones only for a moment.
func TestRequestsDoNotWaitLongForACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := int64(100_000)
		s := &truth{takes: 10 * time.Second, limits: forebay.TenantLimits{WaitingJobs: &most}}
		m := New(s, forebay.TenantLimits{})
		defer m.Close()
		for i, want := range []time.Duration{patience, moment, moment, moment} {
			began := time.Now()
			done, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, 1)
			if waited := time.Since(began); err != nil || waited != want {
				t.Errorf("request %d waited %s: %v", i, waited, err)
			}
			done()
		}
		<-time.After(s.takes)
		began := time.Now()
		if _, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, 1); err != nil || time.Since(began) > 0 {
			t.Errorf("once it is counted: %v", err)
		}
	})
}

// Requests at the same moment do not exceed a limit together, because what is being stored
// counts.
func TestTakeCountsWhatIsUnderWay(t *testing.T) {
	most := int64(10)
	s := &truth{limits: forebay.TenantLimits{WaitingJobs: &most}}
	m := New(s, forebay.TenantLimits{})
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			done, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, 1)
			if err == nil {
				s.mu.Lock()
				s.n++
				s.mu.Unlock()
			}
			done()
		})
	}
	running.Wait()
	if s.n == 0 || s.n > most {
		t.Fatalf("%d of %d", s.n, most)
	}
	if done, err := m.Take(t.Context(), "other", forebay.LimitDocuments, 1); err != nil {
		t.Fatal("another limit of another tenant: ", err)
	} else {
		done()
	}
}

// A key has its rate, and many keys have no more than their tenant.
func TestRequestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perKey, all := int64(10), int64(30)
		m := New(&truth{limits: forebay.TenantLimits{KeyRequests: &perKey, Requests: &all}}, forebay.TenantLimits{})
		served := func(tenant, key string, n int) (count int) {
			for range n {
				if err := m.Request(t.Context(), tenant, key); err == nil {
					count++
				} else if e, ok := errors.AsType[*forebay.Error](err); !ok || e.Code != forebay.CodeRateLimited || e.RetryAfter <= 0 {
					t.Fatal(err)
				}
			}
			return count
		}
		if n := served("acme", "a", 100); n != 20 {
			t.Errorf("%d requests at once with one key", n)
		}
		total := 20
		for _, key := range []string{"b", "c", "d", "e"} {
			total += served("acme", key, 100)
		}
		if total != 60 {
			t.Errorf("%d requests at once with five keys", total)
		}
		if n := served("other", "x", 5); n != 5 {
			t.Errorf("another tenant had %d", n)
		}
		<-time.After(time.Second)
		if n := served("acme", "a", 100); n != 10 {
			t.Errorf("%d requests a second later", n)
		}
	})
}

func TestStrangersAreLimitedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, served := New(&truth{}, forebay.TenantLimits{}), 0
		for range 3 * strangerRate {
			if m.Stranger("192.0.2.1") == nil {
				served++
			}
		}
		if served != burstSeconds*strangerRate || m.Stranger("192.0.2.2") != nil {
			t.Errorf("%d were served", served)
		}
		for n := range 2 * maxBuckets {
			_ = m.Stranger(string(rune(n)))
		}
		if len(m.addresses) > maxBuckets {
			t.Errorf("%d addresses are remembered", len(m.addresses))
		}
	})
}

// Each of several processes has an equal part of a rate, as soon as it knows of the others.
func TestProcessesShareRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perKey, none := int64(30), int64(0)
		s := &truth{limits: forebay.TenantLimits{KeyRequests: &perKey, Requests: &none}, shared: true}
		s.others.Store(2)
		m := New(s, forebay.TenantLimits{})
		defer m.Close()
		served := func() (count int) {
			var refusal error
			for range 100 {
				if err := m.Request(t.Context(), "acme", "key"); err != nil {
					refusal = err
				} else {
					count++
				}
			}
			e, ok := errors.AsType[*forebay.Error](refusal)
			if !ok || e.Code != forebay.CodeRateLimited || !strings.Contains(e.Message, "key_requests_per_second is reached: 30 requests a second") || e.RetryAfter <= 0 {
				t.Errorf("refused with %+v", refusal)
			}
			if alone := s.others.Load() == 0; alone == strings.Contains(e.Message, "shared by") {
				t.Errorf("%d others, and the refusal says %q", s.others.Load(), e.Message)
			}
			return count
		}
		if n := served(); n != burstSeconds*10 {
			t.Errorf("one of three processes let %d requests through at once", n)
		}
		<-time.After(time.Second)
		if n := served(); n != 10 {
			t.Errorf("one of three processes let %d requests through in a second", n)
		}
		s.others.Store(0)
		<-time.After(2 * limitsFor) // the request that looks does not wait for the answer
		_ = m.Request(t.Context(), "acme", "key")
		synctest.Wait()
		_ = served()
		<-time.After(time.Second)
		if n := served(); n != 30 {
			t.Errorf("the only process left let %d requests through in a second", n)
		}
	})
}

// A failed count stops nobody; an earlier count still holds.
func TestTakeWithoutACount(t *testing.T) {
	most := int64(10)
	s := &truth{limits: forebay.TenantLimits{WaitingJobs: &most}, fails: errors.New("the statement took too long")}
	m := New(s, forebay.TenantLimits{})
	take := func(n int64) error {
		done, err := m.Take(t.Context(), "acme", forebay.LimitWaitingJobs, n)
		done()
		return err
	}
	if err := take(4); err != nil {
		t.Errorf("before there was any count: %v", err)
	}
	s.fails, s.n = nil, 4
	if err := take(3); err != nil {
		t.Errorf("once it can be counted: %v", err)
	}
	s.fails = errors.New("again")
	if err := take(4); forebay.CodeOf(err) != forebay.CodeTenantLimit {
		t.Errorf("beyond the limit, by the count before: %v", err)
	}
}

// A refusal names the limit and how much there is, and says when to try again where that helps.
func TestRefusalsSayWhatIsUsed(t *testing.T) {
	most := int64(10)
	s := &truth{n: 9, limits: forebay.TenantLimits{WaitingJobs: &most, Webhooks: &most}}
	m := New(s, forebay.TenantLimits{})
	for name, again := range map[forebay.LimitName]bool{forebay.LimitWaitingJobs: true, forebay.LimitWebhooks: false} {
		_, err := m.Take(t.Context(), "acme", name, 2)
		e, ok := errors.AsType[*forebay.Error](err)
		if !ok || e.Code != forebay.CodeTenantLimit || !strings.Contains(e.Message, string(name)+" is reached: 9 of 10 are used and 2 more were asked for") || e.RetryAfter > 0 != again {
			t.Errorf("%s: %+v", name, err)
		}
	}
}
