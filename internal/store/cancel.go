package store

import (
	"context"

	"github.com/forebayhq/forebay"
)

// Cancel ends the job as cancelled if it is not terminal yet, and reports whether it is cancelled
// now. The lock of a worker is void from then on; if there was one (locked), its attempt is recorded,
// to which AmendCancelled can add what the worker knows.
func (s *Store) Cancel(ctx context.Context, seq int64) (cancelled, locked bool, err error) {
	cancelled, err = transact(ctx, s, stageChange, func(t *tx) (bool, error) {
		var m struct {
			locked, setAside   bool
			lockedAt, started  int64
			generation, number int
			attempt            int
			version            int64
		}
		found, err := t.prep("SELECT token, locked_at, lane, generation, attempt, number, version, started_at FROM messages WHERE seq = ?").
			int(seq).one(func(r row) {
			m.locked, m.lockedAt = !r.isNull(0), r.int(1)
			m.setAside = Lane(r.int(2)).Kind() >= LaneDeadLetter
			m.generation, m.attempt, m.number, m.version, m.started = int(r.int(3)), int(r.int(4)), int(r.int(5)), r.int(6), r.int(7)
		})
		if err != nil {
			return false, err
		}
		if !found || m.setAside {
			already := false
			_, err := t.prep("SELECT status = 'cancelled' FROM outcomes WHERE seq = ?").int(seq).one(func(r row) { already = r.int(0) != 0 })
			return already, err
		}
		if err := t.prep("DELETE FROM messages WHERE seq = ?").int(seq).exec(); err != nil {
			return false, err
		}
		number := 0
		if locked = m.locked; locked {
			number = m.number
			err := t.attempt(seq, m.generation, m.number, m.lockedAt, AttemptRecord{Outcome: forebay.OutcomeCancelled})
			if err != nil {
				return false, err
			}
		}
		return true, t.end(ending{
			seq: seq, status: forebay.StatusCancelled, generation: m.generation, attempt: m.attempt, number: number,
			version: m.version + 1, started: m.started,
		}, forebay.EventCancelled)
	})
	return cancelled, locked, err
}

// AmendCancelled adds to a cancelled attempt what only its worker knew: the deployment and the
// tokens spent until the call was aborted. It changes no other attempt.
func (s *Store) AmendCancelled(ctx context.Context, d *Delivery, deployment string, usage forebay.TokenUsage, cost forebay.Money) error {
	_, err := transact(ctx, s, stageSettle, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep(`UPDATE attempts SET deployment = ?, input_tokens = ?, output_tokens = ?, cost = ?
			WHERE seq = ? AND generation = ? AND number = ? AND outcome = 'cancelled' AND deployment = ''`).
			text(deployment).int(usage.InputTokens).int(usage.OutputTokens).int(int64(cost)).
			int(d.Seq).int(int64(d.Generation)).int(int64(d.Number)).exec()
	})
	return err
}
