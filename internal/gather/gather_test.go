package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// calls records what is asked, and answers when the test lets it.
type calls struct {
	mu    sync.Mutex
	asked [][]int
	by    []string
	let   chan error // one for each call
}

func (c *calls) ask(ctx context.Context, by string, questions []int) (answers []string, err error) {
	c.mu.Lock()
	c.asked, c.by = append(c.asked, slices.Clone(questions)), append(c.by, by)
	c.mu.Unlock()
	select {
	case err = <-c.let:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	for _, q := range questions {
		answers = append(answers, fmt.Sprint(by, q))
	}
	return answers, nil
}

// What is asked while a party's calls are under way goes together in its next call.
func TestQuestionsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{let: make(chan error)}
		s := New(c.ask)
		var all sync.WaitGroup
		ask := func(by string, q int) {
			all.Go(func() {
				if got, err := s.Ask(t.Context(), by, q); err != nil || got != fmt.Sprint(by, q) {
					t.Errorf("%s asked %d and got %q, %v", by, q, got, err)
				}
			})
			synctest.Wait() // so that the order is known
		}
		for q := range callsAtOnce + mostAtOnce + 3 {
			ask("a", q)
		}
		ask("b", 1) // waits for nobody of another party
		if len(c.asked) != callsAtOnce+1 || c.by[callsAtOnce] != "b" {
			t.Fatalf("%v asked %v before anything was answered", c.by, c.asked)
		}
		for range callsAtOnce + 3 {
			c.let <- nil
			synctest.Wait()
		}
		all.Wait()
		lengths := []int{}
		for _, questions := range c.asked {
			lengths = append(lengths, len(questions))
		}
		if want := append(slices.Repeat([]int{1}, callsAtOnce+1), mostAtOnce, 3); !slices.Equal(lengths, want) || !slices.IsSorted(slices.Concat(c.asked[callsAtOnce+1:]...)) {
			t.Errorf("calls asked %v", c.asked)
		}
		if len(s.parties) != 0 {
			t.Errorf("%d parties are remembered", len(s.parties))
		}
	})
}

// A caller that leaves takes nobody's answer away. It waits for nobody's, unless it asks for
// others.
func TestWhoLeavesIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{let: make(chan error)}
		s := New(c.ask)
		ctx := make([]context.Context, 7)
		leave := make([]context.CancelFunc, 7)
		errs, answers := make([]error, 7), make([]string, 7)
		var all sync.WaitGroup
		for q := range ctx {
			ctx[q], leave[q] = context.WithCancel(t.Context())
			defer leave[q]()
			all.Go(func() { answers[q], errs[q] = s.Ask(ctx[q], "a", q) })
			synctest.Wait()
		}
		leave[4]() // it waits
		synctest.Wait()
		leave[0]() // it asks only for itself: 3, 5 and 6 are asked together now, by 3
		synctest.Wait()
		leave[3]()
		leave[5]()
		synctest.Wait()
		for _, q := range []int{0, 4, 5} {
			if !errors.Is(errs[q], context.Canceled) {
				t.Errorf("%d has left and got %q, %v", q, answers[q], errs[q])
			}
		}
		for range callsAtOnce {
			c.let <- nil
		}
		all.Wait()
		for _, q := range []int{1, 2, 3, 6} {
			if errs[q] != nil || answers[q] != fmt.Sprint("a", q) {
				t.Errorf("%d got %q, %v", q, answers[q], errs[q])
			}
		}
		if want := []int{3, 5, 6}; len(c.asked) != callsAtOnce+1 || !slices.Equal(c.asked[callsAtOnce], want) {
			t.Errorf("calls asked %v", c.asked)
		}
		if _, err := s.Ask(ctx[4], "a", 4); !errors.Is(err, context.Canceled) {
			t.Errorf("who had left before it asked got %v", err)
		}
	})
}

// An error is that of all who asked together, and the next ones are asked all the same.
func TestErrorsAndPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		let := make(chan error)
		s := New(func(_ context.Context, _ string, questions []int) ([]int, error) {
			err := <-let
			if err == nil {
				panic("a bug")
			}
			return questions, err
		})
		errs := make([]error, 8)
		var all sync.WaitGroup
		for q := range errs {
			all.Go(func() {
				defer func() {
					if recover() != nil {
						errs[q] = errors.New("panicked")
					}
				}()
				_, errs[q] = s.Ask(t.Context(), "a", q)
			})
			synctest.Wait()
		}
		let <- lost // 0; the others follow, led by 3
		synctest.Wait()
		let <- nil // one of 1, 2 and those
		for range callsAtOnce - 1 {
			let <- lost
		}
		all.Wait()
		n := map[string]int{}
		for _, err := range errs {
			n[err.Error()]++
		}
		// Those that go together get the same; one of them has panicked for all.
		if n["panicked"] != 1 || n["lost"]+n[errNotAnswered.Error()] != 7 || len(s.parties) != 0 {
			t.Errorf("%v, and %d parties are remembered", n, len(s.parties))
		}
	})
}
