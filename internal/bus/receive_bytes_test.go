package bus

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
)

// However many receivers wait for large messages, one transaction reads only so much for them.
func TestATransactionReadsOnlySoMuchForReceivers(t *testing.T) {
	const receivers, each, size = 40, 2, 1_000_000
	s, err := openStores(background, db.Options{Path: filepath.Join(t.TempDir(), "f.db"), Serve: true})
	mustDo(t, err)
	defer s.DB.Close()
	q, _, err := s.Bus.PutMessageQueue(background, MessageQueue{Tenant: tenantOf(t, s, "acme"), Name: "acme/q", Lock: testLock, MaxDeliveries: testMaxDeliveries}, 20)
	mustDo(t, err)
	send := func() {
		messages := make([]MessageContent, receivers*each)
		for i := range messages {
			messages[i] = MessageContent{MessageID: "m", Body: make([]byte, size)}
		}
		_, err := s.Bus.Send(background, q, messages)
		mustDo(t, err)
	}
	var mu sync.Mutex
	var receiving sync.WaitGroup
	read := map[int64]int{} // bytes, by the times of transactions
	receive := func(wait bool) {
		for range receivers {
			receiving.Go(func() {
				got, err := s.Bus.Receive(background, ReceiveRequest{Queue: q, Max: each, MaxBytes: 2 * each * size, Wait: wait})
				if err != nil || len(got) != each {
					t.Errorf("received %d messages: %v", len(got), err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, m := range got {
					read[m.LockedUntil.UnixMilli()] += len(m.Body)
				}
			})
		}
	}
	receive(true)
	for waiting := 0; waiting < receivers; {
		waiting, err = s.receivers()
		mustDo(t, err)
	}
	send()
	receiving.Wait()
	send()
	receive(false) // who wants an answer at once gets what there is nevertheless
	receiving.Wait()
	for _, n := range read {
		if n > maxReadyBytes+each*size {
			t.Errorf("one transaction read %d bytes", n)
		}
	}
}

// What is held already takes no room in the answer of who receives deferred messages.
func testDeferredBesideHeldOnes(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{})
	sendBodies(t, s, q, "123456", "7890", "abc", "d") // and a byte of message id each
	var seqs []int64
	for range 4 {
		m := receiveOne(t, s, q)
		mustDo(t, s.Bus.Defer(t.Context(), q.Subqueue(false), m.Lock, nil))
		seqs = append(seqs, m.Seq)
	}
	for _, want := range []string{"[123456]", "[7890 abc]", "[d]", "[]"} {
		got, err := s.Bus.ReceiveDeferred(t.Context(), ReceiveRequest{Queue: q, MaxBytes: 10}, seqs)
		mustDo(t, err)
		bodies := []string{}
		for _, m := range got {
			bodies = append(bodies, string(m.Body))
		}
		if fmt.Sprint(bodies) != want {
			t.Errorf("received %s, expected %s", bodies, want)
		}
	}
}
