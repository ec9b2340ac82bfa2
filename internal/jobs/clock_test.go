package jobs

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// ahead is by how much the clock of these tests is wrong for a while.
const ahead = 2 * time.Hour

// makeAhead stores a job that is ready, one that is scheduled, and one whose worker dies, all by a clock that is ahead.
func makeAhead(t *testing.T, s *stores, now int64) (subqueue queue.Subqueue, scheduled time.Time) {
	t.Helper()
	tenant, queueID := tenantNamed(t, s, "t"), queueOf(t, s, "q")
	subqueue, scheduled = queue.SubqueueOf(queueID, queue.SubqueueMain), time.UnixMilli(now).Add(3*time.Hour)
	put(t, s, tenant, queueID, 1, func(j *NewJob) { j.ID = "job_locked" })
	take(t, s, subqueue, 1, time.Minute)
	put(t, s, tenant, queueID, 1, func(j *NewJob) { j.ID = "job_ready" })
	put(t, s, tenant, queueID, 1, func(j *NewJob) { j.ID, j.ScheduledAt = "job_scheduled", &scheduled })
	return subqueue, scheduled
}

func visibles(t *testing.T, s *stores) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		return c.Prep("SELECT j.id, m.visible FROM jobs j JOIN messages m ON m.seq = j.seq").Each(func(r driver.Row) error {
			found[r.Text(0)] = r.Int(1)
			return nil
		})
	})
	mustDo(t, err)
	return found
}

// A clock that is right again leaves no job that waits for the time it showed, nor a lock that lasts until then.
func TestClockThatGoesBack(t *testing.T) {
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := fixture.ClockSchema(dbtest.NewClockServer(t), "back")
		s := c.Open(t)
		defer s.DB.Close()
		right := c.Now()
		c.Advance(ahead)
		subqueue, scheduled := makeAhead(t, s, c.Now())
		c.Advance(-ahead)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Second, MaxDeliveries: 3, SetAside: queue.SubqueueDeadLetter})
		if err != nil || len(got) != 1 {
			t.Fatalf("with the clock right again: %d jobs, %v", len(got), err)
		}
		for at := visibles(t, s); at["job_locked"] > right+time.Minute.Milliseconds() || at["job_scheduled"] != scheduled.UnixMilli(); {
			t.Fatalf("it is %d; visible are %v, scheduled %v", right, at, scheduled)
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "forebay.db")
		s, _, _ := openWith(t, db.Options{Path: path, Serve: true})
		right := time.Now().UnixMilli()
		subqueue, scheduled := makeAhead(t, s, right)
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			d := ahead.Milliseconds()
			for _, sql := range []string{"UPDATE jobs SET created_at = created_at + ?1", "UPDATE messages SET visible = visible + ?1, locked_at = locked_at + ?1 WHERE visible < ?2"} {
				st := t.Prep(sql).Int(d)
				if sql[7] == 'm' {
					st = st.Int(scheduled.UnixMilli())
				}
				if err := st.Exec(); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		mustDo(t, s.DB.Close())
		if s, err = openStores(t.Context(), db.Options{Path: path, Serve: true}); err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for n := 0; n < 2; {
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3, SetAside: queue.SubqueueDeadLetter})
			if err != nil {
				t.Fatalf("%d jobs: %v", n, err)
			}
			n += len(got)
		}
		if at := visibles(t, s); at["job_scheduled"] != scheduled.UnixMilli() {
			t.Errorf("what was scheduled for %d is visible at %d", scheduled.UnixMilli(), at["job_scheduled"])
		}
	})
}

// Jobs that a wrong clock has made in the future, or late, do not keep older ones behind them from being purged.
func TestRetentionPassesTheFuture(t *testing.T) {
	s, tenant, queueID := open(t)
	put(t, s, tenant, queueID, 3, nil)
	for _, d := range take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 3, time.Minute) {
		mustDo(t, s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}))
	}
	day := 24 * time.Hour
	_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		for seq, at := range map[int64]int64{1: t.Now + day.Milliseconds(), 2: t.Now - time.Hour.Milliseconds(), 3: t.Now - 2*day.Milliseconds()} {
			for _, sql := range []string{"UPDATE jobs SET created_at = ? WHERE seq = ?", "UPDATE outcomes SET completed_at = ? WHERE seq = ?"} {
				if err := t.Prep(sql).Int(at).Int(seq).Exec(); err != nil {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	mustDo(t, err)
	step, err := s.Jobs.NextPurge(t.Context(), PurgeQuery{Ended: map[forebay.Status]time.Time{forebay.StatusSucceeded: time.Now().Add(-day)}}, 0)
	if err != nil || step.Count != 1 || step.First != 3 || step.Last != 3 {
		t.Errorf("%+v %v", step, err)
	}
}
