package documents

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// committing is for tests in which no transaction may fail: each of its operations would be tried
// alone then.
func committing(t *testing.T, s *stores) *tripsOfDocuments {
	s.DB.OnCommit(func(c db.Commit) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	return &tripsOfDocuments{TB: t, s: s, tenant: tenantOf(t, s, "acme")}
}

// counted is how many rows a table has, or what selects from it.
func (d *tripsOfDocuments) counted(from string, args ...int64) (n int64) {
	d.Helper()
	d.check(d.s.DB.Read(d.Context(), func(c driver.Conn) error {
		st := c.Prep("SELECT count(*) FROM " + from)
		for _, arg := range args {
			st = st.Int(arg)
		}
		_, err := st.One(func(r driver.Row) { n = r.Int(0) })
		return err
	}))
	return n
}

// replacing is a live content with three locked jobs, and another that only has to be described.
type replacing struct {
	*tripsOfDocuments
	live, next uploaded
	locked     []jobs.LockedJob
}

func newReplacing(t *testing.T, s *stores) *replacing {
	d := committing(t, s)
	r := &replacing{tripsOfDocuments: d, live: d.embedded(1)[0]}
	d.check(d.describe(r.live))
	r.locked = d.claimed([]uploaded{r.live})
	r.next = d.addTo(r.live.id)
	d.check(s.Documents.BeginSplit(t.Context(), r.next.rev, splitter))
	d.check(d.endSplit(r.next))
	for _, call := range d.embeds(r.next) {
		d.check(call())
	}
	rev, err := s.Documents.RevisionOf(t.Context(), d.tenant, r.next.rev.ID)
	if d.check(err); rev.Before != r.live.rev.No {
		t.Fatalf("revision %d is live before, want %d", rev.Before, r.live.rev.No)
	}
	r.next.rev = rev
	return r
}

// replace makes the other content live.
func (r *replacing) replace() error { return r.describe(r.next) }

func (r *replacing) outcome(job int, status forebay.Status) int64 {
	return r.counted("outcomes WHERE seq = ? AND status = '"+string(status)+"'", r.locked[job].Seq)
}

func (r *replacing) failed(job int) func() error {
	return func() error {
		return r.s.Jobs.DeadLetter(r.Context(), &r.locked[job], callFailed, queue.SubqueueDeadLetter, "bad")
	}
}

// A transaction reads the jobs of a live content as it begins. That may no longer be true when
// another content takes its place at the end.
func TestWhatIsReplacedHasItsJobsCancelledAsTheyAre(t *testing.T) {
	for name, c := range map[string]func(*testing.T, *replacing) (calls []func() error, check func()){
		"jobs end": func(t *testing.T, r *replacing) ([]func() error, func()) {
			succeeded := func() error {
				return r.s.Jobs.Succeed(t.Context(), &r.locked[0], jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1})
			}
			return []func() error{succeeded, r.failed(1), r.replace}, func() {
				if r.outcome(0, forebay.StatusSucceeded) != 1 || r.outcome(1, forebay.StatusFailed) != 1 || r.outcome(2, forebay.StatusCancelled) != 1 {
					t.Error("a job has not ended as it did")
				}
			}
		},
		"a dead letter is redriven": func(t *testing.T, r *replacing) ([]func() error, func()) {
			r.check(r.failed(1)())
			redrive := func() error {
				_, err := r.s.Jobs.Redrive(t.Context(), []jobs.Redrive{{Seq: r.locked[1].Seq}}, audit.Act{Action: "redrive"})
				return err
			}
			return []func() error{redrive, r.replace}, func() {
				if r.outcome(1, forebay.StatusCancelled) != 1 {
					t.Error("the redriven job goes on")
				}
			}
		},
		"a job is released": func(t *testing.T, r *replacing) ([]func() error, func()) {
			release := func() error { return r.s.Jobs.Release(t.Context(), &r.locked[1], 0, "") }
			return []func() error{release, r.replace}, func() {
				if r.outcome(1, forebay.StatusCancelled) != 1 || r.counted("attempts WHERE seq = ?", r.locked[1].Seq) != 0 {
					t.Error("the released job is not cancelled, or as one that runs")
				}
			}
		},
		"an operation does not say what it changes": func(t *testing.T, r *replacing) ([]func() error, func()) {
			remove := func() error {
				_, err := db.Transact(t.Context(), r.s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
					return struct{}{}, tx.Prep(queue.SQLDeleteMessage).Int(r.locked[1].Seq).Exec()
				})
				return err
			}
			return []func() error{r.replace, remove}, func() {
				if r.outcome(1, forebay.StatusCancelled) != 0 {
					t.Error("a job that is gone was cancelled")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fixture.WithStores(t, func(t *testing.T, s *stores) {
				r := newReplacing(t, s)
				calls, check := c(t, r)
				r.check(errors.Join(dbtest.InOneTransaction(t, s.DB, calls...)...))
				check()
				if n := r.counted("document_jobs WHERE revision = ?", r.live.rev.No); n != 0 {
					t.Errorf("%d jobs of what was replaced are left", n)
				}
				for more := true; more; {
					var err error
					_, more, err = s.Documents.PurgeDocuments(t.Context())
					r.check(err)
				}
				for _, job := range r.locked {
					if r.counted("messages WHERE seq = ?", job.Seq) != 0 {
						t.Error("a message of what was replaced is left")
					}
				}
			})
		})
	}
}

// A step that cancels more jobs of a dropped content finds one that is retried as it is.
func TestJobsOfDroppedContentAreCancelledAsTheyAre(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		r := newReplacing(t, s)
		r.check(errors.Join(dbtest.InOneTransaction(t, s.DB, func() error {
			s.Documents.cancelDropped(t.Context(), r.tenant, r.live.rev.No, nil)
			return nil
		}, func() error { return s.Jobs.Retry(t.Context(), &r.locked[0], callFailed) })...))
		if r.outcome(0, forebay.StatusCancelled) != 1 || r.counted("attempts WHERE seq = ?", r.locked[0].Seq) != 1 {
			t.Error("the job is not cancelled, or has another attempt than the one that failed")
		}
	})
}

// A content with more jobs than one transaction cancels is dropped with all of them.
func TestManyJobsOfWhatIsDeletedAreCancelled(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		d := &tripsOfDocuments{TB: t, s: s, tenant: tenantOf(t, s, "acme")}
		u := d.added(1)[0]
		d.check(s.Documents.BeginSplit(t.Context(), u.rev, splitter))
		const many = 2*dropJobs + 3
		split := SplitResult{Chunks: many, Rest: newChunksOf(0, many)}
		for n := range int64(many) {
			split.Jobs = append(split.Jobs, DocumentJob{Branch: BranchEmbedding, First: n, Last: n, Job: d.job(embedJob(u.rev, n))})
		}
		d.check(s.Documents.EndSplit(t.Context(), d.tenant, u.rev.No, splitter, "job_"+u.rev.ID[len("rev_"):]+"split", split))
		_, err := s.Documents.DeleteDocument(t.Context(), d.tenant, u.id, audit.Act{Action: "delete-document"})
		if d.check(err); d.counted("outcomes WHERE status = 'cancelled'") != many+1 || d.counted("messages") != 0 { // with the job that splits
			t.Errorf("%d of %d jobs are cancelled, and %d wait", d.counted("outcomes WHERE status = 'cancelled'"), many+1, d.counted("messages"))
		}
	})
}

// Chunks that another job has left are removed a hundred at a time.
func TestChunksThatAreLeftAreRemovedByTheHundred(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		d := &tripsOfDocuments{TB: t, s: s, tenant: tenantOf(t, s, "acme")}
		u := d.added(1)[0]
		d.check(s.Documents.BeginSplit(t.Context(), u.rev, splitter))
		for n := range 5 {
			d.check(s.Documents.AddChunks(t.Context(), d.tenant, u.rev.No, splitter, newChunksOf(n*100, 100)))
		}
		var commits atomic.Int64
		s.DB.OnCommit(func(c db.Commit) {
			if c.Operations > 0 {
				commits.Add(1)
			}
		})
		d.check(s.Documents.BeginSplit(t.Context(), u.rev, splitter+1))
		if n := d.counted("chunks"); n != 0 || commits.Load() > 7 {
			t.Errorf("%d chunks are left after %d transactions", n, commits.Load())
		}
	})
}
