package orchestrate

import (
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// What a transaction takes on PostgreSQL does not grow with its operations: each transition of an
// instance and of an activity is one of [newMixes]. Two are left out on purpose: the first use of
// a name, for which a queue is made, and a purge of an open instance by force.
func TestRoundTripsOfOrchestrations(t *testing.T) {
	const n = 24
	trips := fixture.Trips(t)
	mixes, newTenant := newMixes(t, trips.Stores, n)
	for name, mix := range mixes {
		most := int64(dbtest.MostTrips)
		switch name {
		case "call instances", "set timers", "continue as new", "create in place of another", "end", "purge", "rewind": // one reads, one writes
			most = 2
		}
		trips.Within(t, most, name, func() []func() error {
			newTenant()
			return mix(n)
		})
	}
	trips.Plans(t)
}

// BenchmarkFarAway measures the same on a PostgreSQL that is 0, 1 and 5 ms away. Calls that take
// many steps at once are left out: their rate is not that of others.
func BenchmarkFarAway(b *testing.B) {
	fixture.FarAway(b, func(t testing.TB, s *stores) map[string]func(n int) []func() error {
		mixes, newTenant := newMixes(t, s, 1)
		newTenant() // for all: where tenants share the writer, its transactions are short
		kinds := map[string]func(n int) []func() error{}
		for name, mix := range mixes {
			switch name {
			case "claim", "claim of many queues", "claim activities of many queues", "purge many at once", "rewind many at once":
				continue
			}
			kinds[name] = mix
		}
		return kinds
	})
}

// newMixes are functions that prepare so many calls of one kind, for the tenant that newTenant
// made last. n is how many instances one call changes that changes many.
func newMixes(t testing.TB, s *stores, n int) (mixes map[string]func(many int) []func() error, newTenant func()) {
	ctx := t.Context()
	var tenant int64 // of the mix that is tried: what others have left is not claimed
	serial := 0
	var events atomic.Int64 // results are made by their callers, all at once
	its := func(n int) ClaimRequest {
		return ClaimRequest{Max: n, Lock: time.Hour, Taker: takesOf(tenant)}
	}
	created := func(many int) (ids []string) {
		for range many {
			serial++
			id := fmt.Sprint("i", serial)
			mustDo(t, s.Orchestrations.CreateOrchestration(ctx, NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
			ids = append(ids, id)
		}
		return ids
	}
	items := func(many int) (list []*OrchestrationItem) {
		created(many)
		for len(list) < many {
			some, err := s.Orchestrations.ClaimOrchestrations(ctx, its(many-len(list)))
			mustDo(t, err)
			for i := range some {
				if some[i].Tenant == tenant { // and not what another mix has suspended or terminated
					list = append(list, &some[i])
				}
			}
		}
		return list
	}
	running := func(activities int) *OrchestrationResult {
		r := &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h"))}
		for range activities {
			// An instance that is claimed again has had such an activity before.
			r.Activities = append(r.Activities, NewActivity{EventID: int(events.Add(1)), Name: "step", Event: Inline([]byte("do"))})
		}
		return r
	}
	activities := func(many int) (list []*ActivityItem) {
		for _, item := range items(many) {
			_, err := s.Orchestrations.CompleteOrchestration(ctx, item, running(1))
			mustDo(t, err)
		}
		for len(list) < many {
			some, err := s.Orchestrations.ClaimActivities(ctx, its(many-len(list)))
			mustDo(t, err)
			for i := range some {
				list = append(list, &some[i])
			}
		}
		return list
	}
	completes := func(result func(i int) *OrchestrationResult) func(many int) []func() error {
		return func(many int) (calls []func() error) {
			for i, item := range items(many) {
				calls = append(calls, func() error { _, err := s.Orchestrations.CompleteOrchestration(ctx, item, result(i)); return err })
			}
			return calls
		}
	}
	settles := func(o ActivityOutcome) func(many int) []func() error {
		return func(many int) (calls []func() error) {
			for _, a := range activities(many) {
				calls = append(calls, func() error { return s.Orchestrations.SettleActivity(ctx, a, o) })
			}
			return calls
		}
	}
	sends := func(does Effect, spread bool) func(many int) []func() error {
		return func(many int) (calls []func() error) {
			ids := created(many)
			for i := range many {
				id := ids[0]
				if spread {
					id = ids[i]
				}
				calls = append(calls, func() error {
					return s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: id, Event: Inline([]byte("e")), Effect: does})
				})
			}
			return calls
		}
	}
	mixes = map[string]func(many int) []func() error{
		"create": func(many int) (calls []func() error) {
			for range many {
				serial++
				o := NewOrchestration{Tenant: tenant, ID: fmt.Sprint("i", serial), Execution: "first", Name: "fan", Event: Inline([]byte("start"))}
				calls = append(calls, func() error { return s.Orchestrations.CreateOrchestration(ctx, o) })
			}
			return calls
		},
		"send":        sends(NoEffect, true),
		"send to one": sends(NoEffect, false),
		"suspend":     sends(Suspends, true),
		"terminate":   sends(Terminates, true),
		"go on":       completes(func(int) *OrchestrationResult { return running(2) }),
		"set timers": completes(func(int) *OrchestrationResult {
			r := running(0)
			r.Timers = []Timer{{At: time.Now().Add(time.Hour).UnixMilli(), Event: Inline([]byte("t"))}}
			return r
		}),
		"end": completes(func(int) *OrchestrationResult {
			return &OrchestrationResult{Status: forebay.OrchestrationCompleted, Output: Inline([]byte("1")), Events: 1, History: Inline([]byte("h"))}
		}),
		"fail": completes(func(int) *OrchestrationResult {
			return &OrchestrationResult{Status: forebay.OrchestrationFailed, Failure: &forebay.OrchestrationFailure{}, Events: 1, History: Inline([]byte("h"))}
		}),
		"call instances": completes(func(i int) *OrchestrationResult {
			r := running(0)
			for k := range 3 {
				id := fmt.Sprintf("child-%d-%d-%d", serial, i, k)
				r.Messages = append(r.Messages, OrchestrationMessage{To: id, Refusal: []byte("no"), Start: &NewOrchestration{Tenant: tenant, ID: id, Execution: "x",
					Name: "fan", StartAt: time.Now().Add(time.Hour).UnixMilli(), Event: Inline([]byte("start"))}})
			}
			return r
		}),
		"tell instances": func(many int) (calls []func() error) {
			to := created(many)
			for i, item := range items(many) {
				r := running(0)
				r.Messages = []OrchestrationMessage{{To: to[i], Event: Inline([]byte("e"))}, {To: to[0], Event: Inline([]byte("e"))}}
				calls = append(calls, func() error { _, err := s.Orchestrations.CompleteOrchestration(ctx, item, r); return err })
			}
			return calls
		},
		"abandon": func(many int) (calls []func() error) {
			for _, item := range items(many) {
				calls = append(calls, func() error { return s.Orchestrations.AbandonOrchestration(ctx, item, time.Minute, true) })
			}
			return calls
		},
		"succeed": settles(success),
		"retry":   settles(ActivityOutcome{Outcome: ActivityRetried, Delay: time.Hour}),
		"abandon activities": func(many int) (calls []func() error) {
			for _, a := range activities(many) {
				calls = append(calls, func() error { return s.Orchestrations.AbandonActivity(ctx, a, time.Minute, true) })
			}
			return calls
		},
		"renew": func(many int) (calls []func() error) {
			for _, a := range activities(many) {
				calls = append(calls, func() error {
					lost, err := s.Orchestrations.RenewItems(ctx, nil, []*ActivityItem{a}, time.Minute)
					if err == nil && len(lost) > 0 {
						err = fmt.Errorf("the lock is lost")
					}
					return err
				})
			}
			return calls
		},
		"claim": func(many int) (calls []func() error) {
			created(many)
			return []func() error{func() error {
				got, err := s.Orchestrations.ClaimOrchestrations(ctx, its(many))
				if err == nil && len(got) != many {
					err = fmt.Errorf("claimed %d of %d", len(got), many)
				}
				return err
			}}
		},
	}
	act := audit.Act{Action: "try"}
	var values atomic.Int64
	large := func() Payload {
		return Payload{Bytes: []byte("x"), Blob: fmt.Sprintf("t/1/orchestrations/%d/1", values.Add(1))}
	}
	named := func(name string) NewOrchestration {
		serial++
		return NewOrchestration{Tenant: tenant, ID: fmt.Sprint("i", serial), Execution: "first", Name: name, Event: Inline([]byte("start"))}
	}
	ended := func(many int) (ids []string) {
		for _, item := range items(many) {
			_, err := s.Orchestrations.CompleteOrchestration(ctx, item, &OrchestrationResult{Status: forebay.OrchestrationFailed, Failure: &forebay.OrchestrationFailure{},
				Events: 1, History: Inline([]byte("h"))})
			mustDo(t, err)
			ids = append(ids, item.ID)
		}
		return ids
	}
	each := func(ids []string, do func(id string) error) (calls []func() error) {
		for _, id := range ids {
			calls = append(calls, func() error { return do(id) })
		}
		return calls
	}
	rewinds := func(atOnce int) func(many int) []func() error {
		return func(many int) (calls []func() error) {
			var all []Rewound
			for _, id := range ended(many) {
				o, err := s.Orchestrations.Orchestration(ctx, tenant, id)
				mustDo(t, err)
				child, err := s.Orchestrations.Orchestration(ctx, tenant, created(1)[0])
				mustDo(t, err)
				all = append(all, Rewound{Tenant: tenant, ID: id, No: o.No, Name: o.Name, Execution: o.Execution, Events: 1, History: Inline([]byte("h")), Event: []byte("again"),
					Audit: act, FailedAt: *o.CompletedAt, Awaits: []Awaited{{child.ID, child.No}}})
			}
			for len(all) > 0 {
				some := all[:min(atOnce, len(all))]
				all = all[len(some):]
				calls = append(calls, func() error { return s.Orchestrations.RewindOrchestrations(ctx, some) })
			}
			return calls
		}
	}
	claims := func(many int, claim func() (int, error)) []func() error {
		got := 0
		return []func() error{func() error {
			n, err := claim()
			if got += n; err == nil && got < many/2 {
				err = fmt.Errorf("claimed %d of %d", got, many)
			}
			return err
		}}
	}
	more := map[string]func(many int) []func() error{
		"create and audit": func(many int) (calls []func() error) {
			for range many {
				o := named("fan")
				o.Audit = act
				calls = append(calls, func() error { return s.Orchestrations.CreateOrchestration(ctx, o) })
			}
			return calls
		},
		"create in place of another": func(many int) (calls []func() error) {
			for _, id := range ended(many) {
				o := named("fan")
				o.ID, o.Replacing, o.Input, o.StartAt = id, act, large(), time.Now().Add(time.Hour).UnixMilli()
				calls = append(calls, func() error { return s.Orchestrations.CreateOrchestration(ctx, o, AnyEnd...) })
			}
			return calls
		},
		"terminate and audit": func(many int) []func() error {
			return each(created(many), func(id string) error {
				return s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: id, Event: Inline([]byte("e")), Effect: Terminates, Audit: act})
			})
		},
		"purge": func(many int) []func() error {
			return each(ended(many), func(id string) error {
				_, err := s.Orchestrations.PurgeOrchestration(ctx, tenant, id, nil, act)
				return err
			})
		},
		"purge many at once": func(many int) []func() error {
			ids := ended(many)
			return []func() error{func() error {
				n, err := s.Orchestrations.PurgeEnded(ctx, tenant, ids, act)
				if err == nil && n != many {
					err = fmt.Errorf("purged %d", n)
				}
				return err
			}}
		},
		"rewind":              rewinds(1),
		"rewind many at once": rewinds(n),
		"go on with large values": completes(func(int) *OrchestrationResult {
			r := running(2)
			r.History, r.Activities[0].Event = large(), large()
			return r
		}),
		"end with large values": completes(func(int) *OrchestrationResult {
			return &OrchestrationResult{Status: forebay.OrchestrationCompleted, Output: large(), Events: 1, History: large()}
		}),
		"continue as new": completes(func(int) *OrchestrationResult {
			r := running(0)
			r.Reset = &Reset{Execution: "next", Input: large()}
			return r
		}),
		"send large values": func(many int) []func() error {
			return each(created(many), func(id string) error {
				return s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: id, Event: large()})
			})
		},
		"forget freed values": func(many int) []func() error {
			return each(make([]string, many), func(string) error { return s.Orchestrations.ForgetFreedBlobs(ctx, []string{"a", "b"}) })
		},
		"claim of many queues": func(many int) []func() error {
			for i := range many {
				mustDo(t, s.Orchestrations.CreateOrchestration(ctx, named(fmt.Sprint("fan", i))))
			}
			return append(claims(many, func() (int, error) {
				got, err := s.Orchestrations.ClaimOrchestrations(ctx, its(many))
				return len(got), err
			}), func() error { return s.Orchestrations.CreateOrchestration(ctx, named("other")) })
		},
		"claim activities of many queues": func(many int) []func() error {
			for i, item := range items(many) {
				r := running(0)
				r.Activities = []NewActivity{{Name: fmt.Sprint("step", i), Event: Inline([]byte("do"))}}
				_, err := s.Orchestrations.CompleteOrchestration(ctx, item, r)
				mustDo(t, err)
			}
			return append(claims(many, func() (int, error) {
				got, err := s.Orchestrations.ClaimActivities(ctx, its(many))
				return len(got), err
			}), func() error { return s.Orchestrations.CreateOrchestration(ctx, named("other")) })
		},
	}
	maps.Copy(mixes, more)
	return mixes, func() {
		serial++
		tenant = tenantOf(t, s, fmt.Sprint("t", serial))
	}
}
