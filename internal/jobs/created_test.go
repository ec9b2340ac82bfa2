package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/listing"
)

// Lists by the time of creation hold what a look at every job finds, page after page.
func TestJobsByTimeOfCreation(t *testing.T) {
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			s, tenant, queue := openWith(t, database(t))
			other, err := s.Queues.EnsureTenant(t.Context(), "other")
			if err != nil {
				t.Fatal(err)
			}
			const count, apart = 200, 10 * listing.CreatedSlack
			var seqs []int64
			for i := range count {
				owner := tenant
				if i%5 == 0 {
					owner = other
				}
				submitAll(t, s, NewJob{ID: fmt.Sprintf("job_%d", i), Tenant: owner, Queue: queue, Task: "work"})
			}
			err = s.DB.Read(t.Context(), func(c driver.Conn) error {
				return c.Prep("SELECT seq FROM jobs ORDER BY seq").Each(func(r driver.Row) error {
					seqs = append(seqs, r.Int(0))
					return nil
				})
			})
			if err != nil || len(seqs) != count {
				t.Fatal(len(seqs), err)
			}
			created := map[int64]int64{}
			_, err = db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
				for i, seq := range seqs {
					at := int64(1e12) + int64(i)*apart + rand.Int64N(listing.CreatedSlack/2) // clocks are set a little
					if i%5 != 0 {
						created[seq] = at
					}
					if err := t.Prep("UPDATE jobs SET created_at = ? WHERE seq = ?").Int(at).Int(seq).Exec(); err != nil {
						return struct{}{}, err
					}
				}
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range [][2]int64{{0, 0}, {1e12 + 50*apart, 0}, {0, 1e12 + 50*apart}, {1e12 + 20*apart, 1e12 + 90*apart}, {1e12 + 300*apart, 0}, {0, 1}, {1e12 + 90*apart, 1e12 + 20*apart}} {
				var want, got []int64
				for seq, at := range created {
					if at >= c[0] && (c[1] == 0 || at < c[1]) {
						want = append(want, seq)
					}
				}
				slices.Sort(want)
				slices.Reverse(want)
				pages := 0
				for q := (JobQuery{Tenant: tenant, CreatedAfter: c[0], CreatedBefore: c[1], Limit: 7}); ; pages++ {
					page, err := s.Jobs.Jobs(context.Background(), q)
					if err != nil {
						t.Fatal(err)
					}
					for _, j := range page.Jobs {
						got = append(got, j.Seq)
					}
					if q.Below = page.Next; page.Next == 0 {
						break
					}
				}
				if !slices.Equal(got, want) || pages > len(want)/7+1 {
					t.Errorf("from %d to %d: %d jobs in %d pages, want %d", c[0], c[1], len(got), pages, len(want))
				}
			}
		})
	}
}
