package bus

import (
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
)

// commits are mixes of commits of several steps, each over entities of its own.
func (t tripping) commits(received func(MessageQueue, int) []Message) map[string]mix {
	each := func(steps func(i int) []Step) mix {
		return func(many int) func() []func() error {
			return func() (calls []func() error) {
				var all [][]Step
				for i := range many {
					all = append(all, steps(i))
				}
				t.settled()
				for _, steps := range all {
					calls = append(calls, func() error { _, err := t.Bus.Commit(t.Context(), steps); return err })
				}
				return calls
			}
		}
	}
	later := func(i int) MessageContent {
		at, m := time.Now().Add(time.Hour), t.content(i)
		m.ScheduledAt = &at
		return m
	}
	settles := func(change func(*MessageQueue)) (steps []Step) {
		q := t.made(change)
		got := received(q, 5)
		for i, kind := range []StepKind{StepComplete, StepAbandon, StepRelease, StepDefer, StepDeadLetter} {
			steps = append(steps, Step{Kind: kind, Queue: q, Lock: got[i].Lock})
			if kind == StepAbandon || kind >= StepDefer {
				steps[i].Changed = forebay.Properties{"again": true}
			}
		}
		return steps
	}
	var shared MessageQueue
	return map[string]mix{
		"commit sends": each(func(i int) []Step {
			return []Step{sends(t.made(nil), t.content(i), later(i)), sends(t.made(duplicates), t.twice(i), t.twice(i+1)), sends(t.made(needsSessions), t.sessionContent(i))}
		}),
		"commit sends onward": each(func(i int) []Step {
			end := t.made(needsSessions)
			return []Step{sends(t.topic(duplicates, nil), t.content(i), later(i)), sends(t.forwards(end), t.sessionContent(i)), sends(t.forwards(t.topic(nil, nil)), t.content(i))}
		}),
		"commit to one queue": each(func(i int) []Step {
			if i == 0 {
				shared = t.made(nil)
			}
			return []Step{sends(shared, t.content(i), t.large(i))}
		}),
		"commit settlements": each(func(int) []Step { return settles(nil) }),
		"commit settlements and forward": each(func(int) []Step {
			end := t.made(nil)
			return settles(func(q *MessageQueue) { q.ForwardDeadLettersTo = end.Name })
		}),
		"commit a receiver's answer": each(func(i int) []Step {
			q := t.made(nil)
			return []Step{completes(q, received(q, 1)[0]), sends(t.made(nil), t.content(i)), sends(t.topic(nil, nil), t.content(i))}
		}),
		"commit in sessions": each(func(i int) []Step {
			q := t.made(needsSessions)
			seq := sendTo(t, t.stores, q, t.sessionContent(i))
			one, err := t.Bus.Sessions().Accept(t.Context(), q, fmt.Sprint("s", i))
			mustDo(t, err)
			got, err := t.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &one.SessionLock, Max: 1, MaxBytes: 1 << 20})
			if err != nil || len(got) != 1 || got[0].Seq != seq[0] {
				t.Fatalf("%d messages of the session: %v", len(got), err)
			}
			return []Step{completes(q, got[0]), {Kind: StepState, Queue: q, Session: one.SessionLock, State: []byte("x")}}
		}),
		"commit cancellations": each(func(i int) []Step {
			q := t.made(nil)
			return []Step{{Kind: StepCancel, Queue: q, Seq: sendTo(t, t.stores, q, later(i))[0]}, sends(q, later(i))}
		}),
		"take numbers": func(many int) func() []func() error {
			return func() (calls []func() error) {
				for range many {
					calls = append(calls, func() error { _, err := TakeNumbers(t.Context(), t.Bus, 1, 3); return err })
				}
				return calls
			}
		},
	}
}
