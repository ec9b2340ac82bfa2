package jobs

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// ahead is by how much the clock of these tests is wrong for a while.
const ahead = 2 * time.Hour

// makeAhead stores a job that is ready, one that is scheduled, and one whose worker dies, all by a
// clock that is ahead.
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
		return c.Prep("SELECT j.id, m.visible_at FROM jobs j JOIN messages m ON m.seq = j.seq").Each(func(r driver.Row) error {
			found[r.Text(0)] = r.Int(1)
			return nil
		})
	})
	mustDo(t, err)
	return found
}

// Once a clock that was ahead is right again, no job waits for the time it showed, and no lock
// lasts until then.
func TestClockThatGoesBack(t *testing.T) {
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := fixture.ClockSchema(dbtest.NewClockServer(t))
		s := c.Open(t)
		defer s.DB.Close()
		right := c.Now()
		c.Advance(ahead)
		subqueue, scheduled := makeAhead(t, s, c.Now())
		c.Advance(-ahead)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Second, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
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
			for _, sql := range []string{"UPDATE jobs SET created_at = created_at + ?1", "UPDATE messages SET visible_at = visible_at + ?1, locked_at = locked_at + ?1 WHERE visible_at < ?2"} {
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
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
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

// Of those who come in the same time one gets the turn.
func TestTakeTurn(t *testing.T) {
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer s.DB.Close()
		turns := 0
		var next int64
		for range rapid.IntRange(1, 20).Draw(t, "times") {
			mine, err := s.Jobs.ClaimChore(t.Context(), "chore", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if mine != (e.Now() >= next) {
				t.Fatalf("at %d: %t, the next turn is at %d", e.Now(), mine, next)
			}
			if mine {
				next = e.Now() + time.Hour.Milliseconds()
				turns++
			}
			e.Pass(s, time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes"))*time.Minute)
		}
		if turns == 0 {
			t.Fatal("nobody got a turn")
		}
		if mine, err := s.Jobs.ClaimChore(t.Context(), "other", time.Hour); err != nil || !mine {
			t.Fatalf("another chore: %t (%v)", mine, err)
		}
	})
}
