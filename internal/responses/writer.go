package responses

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Events are stored in groups: a group waits so long for more, unless it is large.
const (
	groupDelay = 75 * time.Millisecond
	groupBytes = 64 << 10
	// heldBytes is how much may wait while a group is being stored. Then the provider's answer
	// waits too.
	heldBytes = 1 << 20
)

// writer stores the events of a response as they come.
type writer struct {
	store *Store
	of    writing

	mu     sync.Mutex
	room   *sync.Cond
	group  Group // that waits
	err    error // of a group; nothing is stored any more
	ended  bool
	kick   chan struct{} // the group has begun, or it is large, or there will be no more
	stored chan struct{} // closed as the loop ends
}

// newWriter returns a writer that goes on from a state. rest must be called.
func newWriter(ctx context.Context, store *Store, of writing, from bridge.State) *writer {
	w := &writer{store: store, of: of, group: Group{From: from, Then: from}, kick: make(chan struct{}, 1), stored: make(chan struct{})}
	w.room = sync.NewCond(&w.mu)
	go w.run(ctx)
	return w
}

// add adds events. then is how the stream stands after them. The error is that of an earlier
// group.
func (w *writer) add(events []bridge.Event, then bridge.State) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.group.Data) > heldBytes && w.err == nil {
		w.room.Wait()
	}
	if w.err != nil {
		return w.err
	}
	begins := len(w.group.Data) == 0
	for _, e := range events {
		w.group.Data = append(append(w.group.Data, e.Data...), '\n')
	}
	w.group.Then = then
	if begins || len(w.group.Data) > groupBytes {
		w.wake()
	}
	return nil
}

func (w *writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run stores groups until rest is called or one cannot be stored.
func (w *writer) run(ctx context.Context) {
	defer close(w.stored)
	for {
		<-w.kick
		if !w.full() { // more may come soon
			timer := time.NewTimer(groupDelay)
			select {
			case <-timer.C:
			case <-w.kick:
			}
			timer.Stop()
		}
		w.mu.Lock()
		if w.ended {
			w.mu.Unlock()
			return
		}
		group := w.group
		w.group = Group{From: group.Then, Then: group.Then}
		w.room.Broadcast()
		w.mu.Unlock()
		if len(group.Data) == 0 {
			continue
		}
		if err := w.store.Append(ctx, w.of, group); err != nil {
			w.mu.Lock()
			w.err = err
			w.room.Broadcast()
			w.mu.Unlock()
			return
		}
	}
}

// full reports whether the group need not wait for more.
func (w *writer) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended || len(w.group.Data) > groupBytes
}

// rest ends the storing, and returns the events that are not stored yet. The error is that of an
// earlier group.
func (w *writer) rest() (Group, error) {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wake()
	<-w.stored
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.group, w.err
}
