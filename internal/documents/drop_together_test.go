package documents

import (
	"errors"
	"fmt"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// What a transaction has read ahead of the jobs of a document may no longer be true when it ends.
// Other operations of the same transaction have settled some, or added some.
func TestDropsTogetherWithOtherSteps(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		d := committing(t, s)
		together := func(calls ...func() error) {
			t.Helper()
			d.check(errors.Join(dbtest.InOneTransaction(t, s.DB, calls...)...))
		}
		count := func(what string, want int64, from string, args ...int64) {
			t.Helper()
			if got := d.counted(from, args...); got != want {
				t.Errorf("%s: %d, want %d", what, got, want)
			}
		}
		remove := func(u uploaded) func() error {
			return func() error {
				_, err := s.Documents.DeleteDocument(t.Context(), d.tenant, u.id, audit.Act{Action: "delete-document"})
				return err
			}
		}
		replace := func(u uploaded) func() error {
			upload := d.upload(u.id)
			return func() error { _, err := s.Documents.AddRevision(t.Context(), upload); return err }
		}
		const ofRevision = "document_jobs WHERE revision = ?"

		// Jobs that a split adds are cancelled with the others.
		split := d.added(1)[0]
		d.check(s.Documents.BeginSplit(t.Context(), split.rev, splitter))
		together(func() error { return d.endSplit(split) }, replace(split))
		count("jobs of what was replaced as it was split", 0, ofRevision, split.rev.No)
		count("messages", 1, "messages") // of the other content's first job

		// Jobs that end otherwise are not cancelled. The others are, also one that runs.
		u := d.split(1)[0]
		claimed := d.claimed([]uploaded{u})
		together(func() error {
			return s.Jobs.Succeed(t.Context(), &claimed[0], jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1})
		}, func() error {
			return s.Jobs.DeadLetter(t.Context(), &claimed[1], callFailed, queue.SubqueueDeadLetter, "bad")
		}, remove(u))
		count("the success", 1, "outcomes WHERE seq = ? AND status = 'succeeded'", claimed[0].Seq)
		count("the failure", 1, "outcomes WHERE seq = ? AND status = 'failed'", claimed[1].Seq)
		count("the call", 1, "attempts WHERE seq = ? AND outcome = 'cancelled'", claimed[2].Seq)
		count("jobs of what was deleted", 0, ofRevision, u.rev.No)
		count("messages", 1, "messages")

		// Contents that go live together have numbers of their own. One that is deleted has none.
		list := d.embedded(3)
		var calls []func() error
		for _, u := range list {
			calls = append(calls, func() error { return d.describe(u) })
		}
		together(append(calls, remove(list[1]))...)
		count("numbers of live contents", 2, "(SELECT DISTINCT live FROM document_revisions WHERE live IS NOT NULL) AS x")
		count("the latest number", 1, "document_revisions WHERE live = (SELECT value FROM counters WHERE name = 'live')")
		count("live contents among those that are dropped", 0, "document_revisions WHERE dropped = 1 AND live IS NOT NULL")

		// Dead letters of a document go with it, and their jobs stay failed.
		u = d.split(1)[0]
		dead := d.claimed([]uploaded{u})
		for _, job := range dead {
			d.check(s.Jobs.DeadLetter(t.Context(), &job, callFailed, queue.SubqueueDeadLetter, "bad"))
		}
		together(remove(u))
		count("dead letters of what was deleted", 0, "messages WHERE subqueue % 4 >= 2")
		count("the failure of one", 1, "outcomes WHERE seq = ? AND status = 'failed'", dead[0].Seq)

		// Of three failed jobs one is replaced, as its dead letter is purged, one is to be two, and
		// one is redriven. Two callers do it once.
		u = d.split(1)[0]
		for _, fail := range d.fails([]uploaded{u}) {
			d.check(fail())
		}
		row, err := s.Documents.Document(t.Context(), d.tenant, u.id)
		if d.check(err); len(row.Failed) != 3 {
			t.Fatalf("%d jobs have failed", len(row.Failed))
		}
		retry := func(caller string) func() error {
			again := make([][]DocumentJob, 3)
			for i, n := range []int{0, 1, 1, 2} {
				again[n] = append(again[n], DocumentJob{Branch: BranchEmbedding, Job: d.job(fmt.Sprint("job_again", caller, i))})
			}
			return func() error {
				_, err := s.Documents.RetryDocument(t.Context(), d.tenant, u.rev.ID, row.Failed, again)
				return err
			}
		}
		together(func() error {
			_, err := s.Jobs.PurgeDeadLetters(t.Context(), []jobs.Purge{{Seq: row.Failed[0].Seq}}, audit.Act{Action: "purge"})
			return err
		}, retry("a"), retry("b"))
		count("new jobs", 3, "jobs WHERE id LIKE 'job_again%'")
		count("redriven jobs", 1, "messages WHERE generation = 2")
		count("jobs that have not failed", 6, ofRevision+" AND error_code IS NULL", u.rev.No)
	})
}
