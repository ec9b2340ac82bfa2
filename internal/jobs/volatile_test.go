package jobs

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Volatile jobs reach the claims for them in the transaction that stores them. That transaction
// serves no other claims, for those rely on its being on disk. They are served by the next.
func TestVolatileJobsServeOnlyTheirOwnClaims(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "acme")
		own, other := queueOf(t, s, "calls"), queueOf(t, s, "q")
		claimed := func(queueNo int64, volatile bool) chan []LockedJob {
			got := make(chan []LockedJob, 1)
			go func() {
				jobs, err := s.Jobs.Claim(t.Context(), ClaimRequest{
					Subqueue: queue.SubqueueOf(queueNo, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, Volatile: volatile,
				})
				if err != nil {
					t.Error(err)
				}
				got <- jobs
			}()
			return got
		}
		submit := func(id string, queueNo int64, volatile bool) {
			submitAll(t, s, NewJob{ID: id, Tenant: tenant, Queue: queueNo, Task: "t", Volatile: volatile})
		}
		for round := range 20 {
			waiting := claimed(other, false)
			mine := claimed(own, true)
			submit(string(rune('a'+round)), own, true)
			d := (<-mine)[0]
			if !d.Volatile {
				t.Fatal("a delivery does not know that it is volatile")
			}
			mustDo(t, s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: "succeeded"}, Output{Inline: []byte("1"), Size: 1}))
			submit(string(rune('A'+round)), other, false)
			if got := <-waiting; got[0].ID != string(rune('A'+round)) || got[0].Volatile {
				t.Fatalf("%+v", got)
			}
			// A claim that relies on the disk gets a volatile job too.
			waiting = claimed(own, false)
			submit(string(rune('À'+round)), own, true)
			if got := <-waiting; got[0].Volatile {
				t.Fatalf("%+v", got)
			}
		}
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			return c.Prep("SELECT count(*) FROM messages").Each(func(r driver.Row) error {
				if r.Int(0) != 40 {
					t.Errorf("%d jobs are under lock", r.Int(0))
				}
				return nil
			})
		}))
	})
}
