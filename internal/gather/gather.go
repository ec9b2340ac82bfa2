// Package gather answers questions of one kind together where each call costs a round trip. Many
// callers that one event wakes then share a few calls, however far away the answers are.
package gather

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Bounds for the questions of one party.
const (
	callsAtOnce = 3  // as many reads of a tenant as are under way at once in any case
	mostAtOnce  = 64 // questions of a call
)

// Questions puts together what is asked at the same time. The first questions of a party are
// asked at once. What comes while its calls are under way goes together in its next call. Parties
// share no calls: none waits for another's, or for the size of another's answers.
type Questions[P comparable, Q, A any] struct {
	ask     func(ctx context.Context, party P, questions []Q) ([]A, error)
	mu      sync.Mutex
	parties map[P]*party[Q, A]
}

// party has questions that wait only while its calls are under way.
type party[Q, A any] struct {
	calls   int
	waiting []*question[Q, A]
}

type question[Q, A any] struct {
	q        Q
	answer   A
	err      error
	answered chan struct{}     // closed once the answer is there
	lead     chan struct{}     // closed when its caller is to ask all of together
	together []*question[Q, A] // itself and those after it
}

// New returns questions that ask answers. It gets 1 to 64 of them and returns an answer for each,
// in their order. Its error is that of all.
func New[P comparable, Q, A any](ask func(ctx context.Context, party P, questions []Q) ([]A, error)) *Questions[P, Q, A] {
	return &Questions[P, Q, A]{ask: ask, parties: map[P]*party[Q, A]{}}
}

// Ask returns the answer to a question. It is found out after Ask was called, and not once ctx has
// ended. Only a call that asks for other callers of the party as well goes on to its end.
func (s *Questions[P, Q, A]) Ask(ctx context.Context, by P, q Q) (answer A, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	s.mu.Lock()
	p := s.parties[by]
	if p == nil {
		p = &party[Q, A]{}
		s.parties[by] = p
	}
	if p.calls < callsAtOnce {
		p.calls++
		s.mu.Unlock()
		return s.alone(ctx, by, p, q)
	}
	x := &question[Q, A]{q: q, answered: make(chan struct{}), lead: make(chan struct{})}
	p.waiting = append(p.waiting, x)
	s.mu.Unlock()
	select {
	case <-x.answered:
		return x.answer, x.err
	case <-x.lead:
	case <-ctx.Done():
		s.leave(p, x)
		select {
		case <-x.lead: // others may count on it
		default:
			return answer, ctx.Err()
		}
	}
	s.call(ctx, by, p, x.together)
	return x.answer, x.err
}

// leave takes a question back if no call has it yet.
func (s *Questions[P, Q, A]) leave(p *party[Q, A], x *question[Q, A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(p.waiting, x); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

// alone asks one question for its own caller.
func (s *Questions[P, Q, A]) alone(ctx context.Context, by P, p *party[Q, A], q Q) (answer A, err error) {
	defer s.ended(by, p)
	answers, err := s.ask(ctx, by, []Q{q})
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}

// errNotAnswered is what the others get where asking panics.
var errNotAnswered = errors.New("questions were not answered")

// call asks questions, the first of which is the caller's own, and hands what waits by then to the
// next caller.
func (s *Questions[P, Q, A]) call(ctx context.Context, by P, p *party[Q, A], together []*question[Q, A]) {
	var answers []A
	err := errNotAnswered
	defer func() {
		s.ended(by, p)
		for i, x := range together {
			if x.err = err; err == nil {
				x.answer = answers[i]
			}
			if i > 0 {
				close(x.answered)
			}
		}
	}()
	asked := make([]Q, len(together))
	for i, x := range together {
		asked[i] = x.q
	}
	if len(asked) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	answers, err = s.ask(ctx, by, asked)
}

// ended has the first of those that wait go on, with as many as one call takes.
func (s *Questions[P, Q, A]) ended(by P, p *party[Q, A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.waiting) == 0 {
		if p.calls--; p.calls == 0 {
			delete(s.parties, by)
		}
		return
	}
	n := min(len(p.waiting), mostAtOnce)
	next := p.waiting[0]
	next.together = p.waiting[:n:n]
	p.waiting = p.waiting[n:]
	close(next.lead)
}
