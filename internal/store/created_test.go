package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Lists by the time of creation hold what a look at every job finds, page after page.
func TestJobsByTimeOfCreation(t *testing.T) {
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			s, tenant, queue := openWith(t, database(t))
			other, err := s.Queues.EnsureTenant(t.Context(), "other")
			if err != nil {
				t.Fatal(err)
			}
			const count, apart = 200, 10 * createdSlack
			var seqs []int64
			for i := range count {
				owner := tenant
				if i%5 == 0 {
					owner = other
				}
				submitAll(t, s, NewJob{ID: fmt.Sprintf("job_%d", i), Tenant: owner, Queue: queue, Task: "work"})
			}
			err = s.DB.read(t.Context(), func(c conn) error {
				return c.prep("SELECT seq FROM jobs ORDER BY seq").each(func(r row) error {
					seqs = append(seqs, r.int(0))
					return nil
				})
			})
			if err != nil || len(seqs) != count {
				t.Fatal(len(seqs), err)
			}
			created := map[int64]int64{}
			_, err = transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
				for i, seq := range seqs {
					at := int64(1e12) + int64(i)*apart + rand.Int64N(createdSlack/2) // clocks are set a little
					if i%5 != 0 {
						created[seq] = at
					}
					if err := t.prep("UPDATE jobs SET created_at = ? WHERE seq = ?").int(at).int(seq).exec(); err != nil {
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
					jobs, next, err := s.Jobs.Jobs(context.Background(), q)
					if err != nil {
						t.Fatal(err)
					}
					for _, j := range jobs {
						got = append(got, j.Seq)
					}
					if q.Below = next; next == 0 {
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

// So do lists of documents.
func TestDocumentsByTimeOfCreation(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant, queue := tenantOf(t, s, "t"), queueOf(t, s, "q")
		const count, apart = 20, 10 * createdSlack
		for i := range count {
			id := fmt.Sprint("doc", i)
			rev := Revision{ID: "rev_" + id, Tenant: tenant, Hash: []byte(id), MediaType: "text/plain", Blob: id}
			job := NewJob{ID: "job_" + id, Tenant: tenant, Queue: queue, Task: "document-split", MaxAttempts: 1}
			if _, err := s.Documents.AddRevision(t.Context(), NewRevision{Revision: rev, DocumentID: id, Split: job}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
			return struct{}{}, t.prep("UPDATE documents SET created_at = ? * CAST(substr(id, 4) AS BIGINT)").int(apart).exec()
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range [][2]int64{{0, 0}, {5 * apart, 0}, {0, 5 * apart}, {5 * apart, 15 * apart}, {5*apart + 1, 15*apart - 1}, {20 * apart, 0}, {0, 1}, {9 * apart, 3 * apart}} {
			var want, got []string
			for i := count - 1; i >= 0; i-- {
				if at := int64(i) * apart; at >= c[0] && (c[1] == 0 || at < c[1]) {
					want = append(want, fmt.Sprint("doc", i))
				}
			}
			for q := (DocumentQuery{Tenant: tenant, CreatedAfter: c[0], CreatedBefore: c[1], Limit: 3}); ; {
				page, next, err := s.Documents.Documents(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range page {
					got = append(got, d.ID)
				}
				if q.Below = next; next == 0 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("between %d and %d are %v, not %v", c[0], c[1], got, want)
			}
		}
		// What is out of order by more than clocks are set is not found, which shows that the history is not walked.
		if _, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
			return struct{}{}, t.prep("UPDATE documents SET created_at = ? WHERE id IN ('doc0', 'doc19')").int(10 * apart).exec()
		}); err != nil {
			t.Fatal(err)
		}
		page, _, err := s.Documents.Documents(t.Context(), DocumentQuery{Tenant: tenant, CreatedAfter: 10 * apart, CreatedBefore: 10*apart + 1, Limit: 9})
		if err != nil || len(page) != 1 || page[0].ID != "doc10" {
			t.Errorf("found %d (%v)", len(page), err)
		}
	})
}
