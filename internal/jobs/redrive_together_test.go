package jobs

import (
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// Jobs of one session that are redriven in one transaction run one after the other, in the order
// of their numbers. One of them that is cancelled there leaves nothing behind.
func TestRedriveOfOneSessionTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		j := &tripsOfJobs{T: t, s: s, tenant: tenantNamed(t, s, "acme")}
		q := j.newQueue()
		ctx := t.Context()
		put(t, s, j.tenant, q, 4, func(n *NewJob) { n.SessionID = "s" })
		claim := func() LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(ctx, j.claimRequest(q, 10, time.Minute))
			if err != nil || len(got) != 1 {
				t.Fatalf("%d jobs of a session at once: %v", len(got), err)
			}
			return got[0]
		}
		var seqs []int64
		for range 4 {
			d := claim()
			mustDo(t, s.Jobs.DeadLetter(ctx, &d, AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad"}, queue.SubqueueDeadLetter, "bad"))
			seqs = append(seqs, d.Seq)
		}
		redrive := func(seqs ...int64) func() error {
			return func() error {
				var list []Redrive
				for _, seq := range seqs {
					list = append(list, Redrive{Seq: seq})
				}
				_, err := s.Jobs.Redrive(ctx, list, audit.Act{Action: "redrive"})
				return err
			}
		}
		cancel := func(seq int64) func() error {
			return func() error {
				c, err := s.Jobs.Cancel(ctx, seq)
				if err == nil && !c.Cancelled {
					err = errors.New("not cancelled")
				}
				return err
			}
		}
		mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB, redrive(seqs[0], seqs[1]), redrive(seqs[2]), redrive(seqs[3]), cancel(seqs[0]))...))
		for _, want := range seqs[1:] {
			d := claim()
			if d.Seq != want {
				t.Errorf("job %d has the turn, want %d", d.Seq, want)
			}
			mustDo(t, s.Jobs.Succeed(ctx, &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}))
		}
		put(t, s, j.tenant, q, 1, func(n *NewJob) { n.SessionID = "s" })
		claim() // nothing holds the session back
	})
}

// A purge removes what its caller has looked at. A job that was redriven since and has failed
// again, perhaps for another reason, stays.
func TestPurgeLeavesLaterGenerations(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		j := &tripsOfJobs{T: t, s: s, tenant: tenantNamed(t, s, "acme")}
		q := j.newQueue()
		ctx := t.Context()
		put(t, s, j.tenant, q, 1, nil)
		var seq int64
		fail := func(reason string) {
			t.Helper()
			got, err := s.Jobs.Claim(ctx, j.claimRequest(q, 1, time.Minute))
			mustDo(t, err)
			seq = got[0].Seq
			mustDo(t, s.Jobs.DeadLetter(ctx, &got[0], AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: reason}, queue.SubqueueDeadLetter, reason))
		}
		fail("bad")
		redriven, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: seq, Generation: 1}}, audit.Act{Action: "redrive"})
		if err != nil || !redriven[0] {
			t.Fatal(redriven, err)
		}
		fail("worse")
		for _, of := range []struct {
			generation int64
			purged     int
		}{{1, 0}, {2, 1}} {
			n, err := s.Jobs.PurgeDeadLetters(ctx, []Purge{{seq, of.generation}}, audit.Act{Action: "purge"})
			if err != nil || n != of.purged {
				t.Errorf("of generation %d %d jobs are purged: %v", of.generation, n, err)
			}
		}
	})
}
