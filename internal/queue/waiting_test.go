package queue

import "testing"

// waiter is one that waits.
type waiter struct{ Waiter }

// Who was served is not kept by the list of those who still wait: it has what it got.
func TestWaitingKeepsNobodyWhoWasServed(t *testing.T) {
	w := NewWaiting[*waiter]()
	subqueue := SubqueueOf(1, SubqueueMain)
	for range 4 {
		w.Add(subqueue, &waiter{NewWaiter()}, nil)
	}
	list := w.Waiters[subqueue]
	w.RemoveFirst(subqueue, 3)
	if left := w.Waiters[subqueue]; len(left) != 1 || left[0] != list[3] {
		t.Fatalf("%d are left", len(left))
	}
	for i, kept := range list[:3] {
		if kept != nil {
			t.Errorf("waiter %d is kept", i)
		}
	}
}
