package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// ahead is by how much the clock of these tests is wrong for a while.
const ahead = 2 * time.Hour

// makeAhead stores a job that is ready, one that is scheduled, and one whose worker dies, all by a clock that is ahead.
func makeAhead(t *testing.T, s *Store, now int64) (subqueue Subqueue, scheduled time.Time) {
	t.Helper()
	tenant, queue := tenantOf(t, s, "t"), queueOf(t, s, "q")
	subqueue, scheduled = SubqueueOf(queue, SubqueueMain), time.UnixMilli(now).Add(3*time.Hour)
	put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID = "job_locked" })
	take(t, s, subqueue, 1, time.Minute)
	put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID = "job_ready" })
	put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID, j.ScheduledAt = "job_scheduled", &scheduled })
	return subqueue, scheduled
}

func visibles(t *testing.T, s *Store) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	err := s.DB.read(t.Context(), func(c conn) error {
		return c.prep("SELECT j.id, m.visible FROM jobs j JOIN messages m ON m.seq = j.seq").each(func(r row) error {
			found[r.text(0)] = r.int(1)
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
		c := &clockSchema{server: newClockServer(t), name: "back"}
		s := c.open(t)
		defer s.DB.Close()
		right := c.at
		c.advance(ahead)
		subqueue, scheduled := makeAhead(t, s, c.at)
		c.advance(-ahead)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Second, MaxDeliveries: 3, SetAside: SubqueueDeadLetter})
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
		s, _, _ := openWith(t, Options{Path: path, Serve: true})
		right := time.Now().UnixMilli()
		subqueue, scheduled := makeAhead(t, s, right)
		_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
			d := ahead.Milliseconds()
			for _, sql := range []string{"UPDATE jobs SET created_at = created_at + ?1", "UPDATE messages SET visible = visible + ?1, locked_at = locked_at + ?1 WHERE visible < ?2"} {
				st := t.prep(sql).int(d)
				if sql[7] == 'm' {
					st = st.int(scheduled.UnixMilli())
				}
				if err := st.exec(); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		mustDo(t, s.DB.Close())
		if s, err = Open(t.Context(), Options{Path: path, Serve: true}); err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for n := 0; n < 2; {
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 10, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3, SetAside: SubqueueDeadLetter})
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
	s, tenant, queue := open(t)
	put(t, s, tenant, queue, 3, nil)
	for _, d := range take(t, s, SubqueueOf(queue, SubqueueMain), 3, time.Minute) {
		mustDo(t, s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}))
	}
	day := 24 * time.Hour
	_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		for seq, at := range map[int64]int64{1: t.now + day.Milliseconds(), 2: t.now - time.Hour.Milliseconds(), 3: t.now - 2*day.Milliseconds()} {
			for _, sql := range []string{"UPDATE jobs SET created_at = ? WHERE seq = ?", "UPDATE outcomes SET completed_at = ? WHERE seq = ?"} {
				if err := t.prep(sql).int(at).int(seq).exec(); err != nil {
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

// Records of a clock that was years ahead are not kept for years, and keep no others.
func TestRecordsOfTheFutureAreRemoved(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant, queue := tenantOf(t, s, "t"), queueOf(t, s, "q")
		put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID, j.IdempotencyKey, j.BodyHash = "job_future", "k", []byte("h") })
		for _, d := range take(t, s, SubqueueOf(queue, SubqueueMain), 1, time.Minute) {
			mustDo(t, s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}))
		}
		for _, id := range []string{"future", "past"} {
			mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
			_, err := s.Orchestrations.CompleteTurn(t.Context(), takeTurn(t, s), &TurnResult{Status: forebay.OrchestrationCompleted, Events: 1, History: Inline([]byte("start"))})
			mustDo(t, err)
		}
		_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
			const years = int64(10 * 365 * 24 * 3600_000)
			for _, sql := range []string{
				"UPDATE jobs SET created_at = created_at + ?", "UPDATE outcomes SET completed_at = completed_at + ?, started_at = completed_at + 1",
				"UPDATE idempotency SET created_at = created_at + ?",
				"UPDATE orchestrations SET created_at = created_at + ?, completed_at = created_at WHERE id = 'future'",
			} {
				if err := t.prep(sql).int(years).exec(); err != nil {
					return struct{}{}, err
				}
			}
			if err := t.prep("UPDATE orchestrations SET completed_at = completed_at + ? WHERE id = 'future'").int(years).exec(); err != nil {
				return struct{}{}, err
			}
			const old = int64(48 * 3600_000)
			return struct{}{}, t.prep("UPDATE orchestrations SET created_at = created_at - ?1, completed_at = completed_at - ?1 WHERE id = 'past'").int(old).exec()
		})
		mustDo(t, err)
		if purged, _, err := s.Orchestrations.PurgeOrchestrations(t.Context(), s.DB.Now().Add(-24*time.Hour), 0); err != nil || purged != 1 {
			t.Errorf("%d instances behind one of the future were purged: %v", purged, err)
		}
		err = s.DB.mendClock(t.Context())
		mustDo(t, err)
		soon := s.DB.Now().Add(time.Hour)
		if step, err := s.Jobs.NextPurge(t.Context(), PurgeQuery{Ended: map[forebay.Status]time.Time{forebay.StatusSucceeded: soon}}, 0); err != nil || step.Count != 1 {
			t.Errorf("jobs: %+v %v", step, err)
		}
		if dropped, err := s.Jobs.ForgetIdempotencyKeys(t.Context(), soon, 10); err != nil || dropped != 1 {
			t.Errorf("%d keys, %v", dropped, err)
		}
		if purged, _, err := s.Orchestrations.PurgeOrchestrations(t.Context(), soon, 0); err != nil || purged != 1 {
			t.Errorf("%d instances of the future were purged: %v", purged, err)
		}
	})
}
