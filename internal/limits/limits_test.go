package limits

import (
	"context"
	"errors"
	"sync"
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
}

func (s *truth) EnsureTenant(context.Context, string) (int64, error) { return 1, nil }
func (s *truth) Shared() bool                                        { return s.shared }
func (s *truth) TenantLimits(context.Context, int64) (forebay.TenantLimits, error) {
	return s.limits, nil
}
func (s *truth) LimitUsed(_ context.Context, _ int64, _ forebay.LimitName, most int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts++
	return min(s.n, most), nil
}

// Whatever comes and goes, one process never exceeds the limit, two do by a part at most, and neither refuses below it.
func TestTakeRefusesOnlyAtTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
				s.n = max(0, s.n-n)
			case 1: // a restart
				for i := range processes {
					if processes[i] == m {
						processes[i] = New(s, forebay.TenantLimits{})
					}
				}
			default:
				done, err := m.Take(context.Background(), "acme", forebay.LimitWaitingJobs, n)
				if s.n+n <= most != (err == nil) && (err != nil || s.n+n > most+over) {
					t.Fatalf("%d of %d are there and %d more come: %v", s.n, most, n, err)
				}
				if err == nil {
					s.n += n
				} else if forebay.CodeOf(err) != forebay.CodeTenantLimit {
					t.Fatal(err)
				}
				done()
			}
		}
	})
}

// Far from the limit nothing is counted for each request.
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

// What is being stored counts, so requests at the same moment do not exceed a limit together.
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
