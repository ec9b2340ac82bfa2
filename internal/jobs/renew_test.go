package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Of many locks those that hold are renewed, on either engine, and the others are told apart.
func TestRenewMany(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID := queueOf(t, s, "q")
		var list []NewJob
		for i := range 20 {
			list = append(list, NewJob{ID: fmt.Sprint("job_", i), Tenant: 1, Queue: queueID, Task: "echo", MaxAttempts: 5})
		}
		if _, err := s.Jobs.Submit(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: len(list), MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
		if err != nil || len(got) != len(list) {
			t.Fatalf("%d deliveries: %v", len(got), err)
		}
		var locks []queue.Lock
		for i := range got {
			locks = append(locks, got[i].Lock)
			if i%3 == 0 {
				locks[i].Token++
			}
		}
		if err := s.Jobs.Succeed(t.Context(), &got[1], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
			t.Fatal(err)
		}
		held, err := s.Jobs.Renew(t.Context(), locks, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		renewed := 0
		err = s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM messages WHERE visible_at > ?").Int(c.Now() + 5*60_000).One(func(r driver.Row) { renewed = int(r.Int(0)) })
			return err
		})
		expected := 0
		for i, h := range held {
			if want := i%3 != 0 && i != 1; h != want {
				t.Errorf("lock %d: held %t", i, h)
			} else if want {
				expected++
			}
		}
		if err != nil || renewed != expected {
			t.Errorf("%d locks were extended, expected %d: %v", renewed, expected, err)
		}
		if held, err := s.Jobs.Renew(t.Context(), nil, time.Minute); err != nil || len(held) != 0 {
			t.Errorf("no locks: %v, %v", held, err)
		}
	})
}
