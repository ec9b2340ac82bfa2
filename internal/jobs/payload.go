package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/memory"
)

func asForebay(err error, target **forebay.Error) bool { return errors.As(err, target) }

// uploadTimeout bounds one upload; the sweep takes none for an orphan that is younger than an hour.
const uploadTimeout = 5 * time.Minute

// checkIn puts a payload over the inline limit into blob storage (claim-check) and returns what the
// database keeps: the bytes, or the key.
func (s *Service) checkIn(ctx context.Context, tenant int64, id, kind string, payload []byte) (inline []byte, key string, err error) {
	return s.checkInOnce(ctx, &upload{}, tenant, id, kind, payload)
}

// upload is a payload on its way into blob storage, for what may be tried several times.
type upload struct {
	key    string // "": not begun
	stored bool
}

// checkInOnce is checkIn for a payload that is checked in again with each try to record it: all tries have the same key, and once it
// is stored no other stores it again.
func (s *Service) checkInOnce(ctx context.Context, u *upload, tenant int64, id, kind string, payload []byte) (inline []byte, key string, err error) {
	if len(payload) <= forebay.InlineBytes {
		return payload, "", nil
	}
	if u.key == "" { // a new one for each upload: a late writer can never change what another one recorded
		u.key = blob.Key(tenant, id, kind+"-"+ids.New(""))
	}
	if u.stored {
		return nil, u.key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if err := s.blobs.Put(ctx, u.key, bytes.NewReader(payload), int64(len(payload))); err != nil {
		return nil, "", err
	}
	u.stored = true
	return nil, u.key, nil
}

// removeUnrecorded removes a payload of a job unless the database refers to it. No transaction that could store that may be under
// way any more. What it fails to remove the sweep does.
func (s *Service) removeUnrecorded(ctx context.Context, id, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if recorded, err := s.store.BlobRecorded(ctx, id, key); err == nil && !recorded {
		_ = s.blobs.Delete(ctx, key)
	}
}

// Payloads of requests whose transaction has failed, so that nobody knows whether it was made.
const (
	maxDoubtful   = 10_000           // the sweep has the others
	doubtfulAfter = 5 * time.Minute  // by then the database has begun what it was sent, or never will
	removeTimeout = 10 * time.Second // of one payload
)

type doubtful struct {
	id, key string
	since   time.Time
}

// doubt notes a payload that the database may refer to or not.
func (s *Service) doubt(id, key string) {
	s.doubtfulMu.Lock()
	defer s.doubtfulMu.Unlock()
	if len(s.doubtful) < maxDoubtful {
		s.doubtful = append(s.doubtful, doubtful{id, key, time.Now()})
	}
}

// RemoveDoubtful removes the payloads of requests that failed five minutes or more before now, if the database does not refer to
// them. While it cannot be asked, or a transaction is under way that may yet refer to them, they stay.
func (s *Service) RemoveDoubtful(ctx context.Context, now time.Time) (removed int, err error) {
	s.doubtfulMu.Lock()
	all := s.doubtful
	s.doubtful = nil
	s.doubtfulMu.Unlock()
	var stay []doubtful
	settled := false
	if slices.ContainsFunc(all, func(d doubtful) bool { return now.Sub(d.since) >= doubtfulAfter }) {
		settled, err = s.store.Settled(ctx)
	}
	for _, d := range all {
		if err != nil || !settled || now.Sub(d.since) < doubtfulAfter {
			stay = append(stay, d)
			continue
		}
		var recorded bool
		if recorded, err = s.store.BlobRecorded(ctx, d.id, d.key); err == nil && !recorded {
			limited, cancel := context.WithTimeout(ctx, removeTimeout)
			err = s.blobs.Delete(limited, d.key)
			cancel()
		}
		switch {
		case err != nil:
			stay = append(stay, d)
		case !recorded:
			removed++
		}
	}
	s.doubtfulMu.Lock()
	defer s.doubtfulMu.Unlock()
	s.doubtful = append(stay, s.doubtful...)
	s.doubtful = s.doubtful[:min(len(s.doubtful), maxDoubtful)]
	return removed, err
}

// checkOut returns a payload wherever it is. A large one is counted in the context's claim of memory.
func (s *Service) checkOut(ctx context.Context, inline []byte, key string, size int64) ([]byte, error) {
	if key == "" {
		return inline, nil
	}
	if err := memory.Grow(ctx, size); err != nil {
		return nil, err
	}
	return s.blobs.ReadAll(ctx, key, size)
}

// Result opens the result of a succeeded job, of whatever size: JSON of that many bytes. It is
// CodeConflict while the job has not succeeded.
func (s *Service) Result(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return nil, 0, err
	}
	if row.Status != forebay.StatusSucceeded {
		return nil, 0, forebay.Errorf(forebay.CodeConflict, "the job has no result: it is %s", row.Status)
	}
	if row.ResultBlob != "" {
		return s.blobs.Get(ctx, row.ResultBlob)
	}
	return io.NopCloser(bytes.NewReader(row.Result)), int64(len(row.Result)), nil
}

// SweepBlobs removes blobs that nothing in the database refers to, left by a crash between upload and transaction.
// Only blobs older than an hour are looked at: by then the transaction that records one has begun. It removes nothing while one is
// under way that does not end, such as one whose commit waits for a standby.
func (s *Service) SweepBlobs(ctx context.Context) (removed int, err error) {
	if settled, err := s.store.Settled(ctx); err != nil || !settled {
		if err == nil {
			err = forebay.Errorf(forebay.CodeUnavailable, "a transaction of the database is under way; blobs are swept once it is over")
		}
		return 0, err
	}
	return s.blobs.Sweep(ctx, time.Now().Add(-time.Hour), func(keys []string) (map[string]bool, error) {
		ids := map[string]string{}
		var orchestrations []string
		used := map[string]bool{}
		for _, key := range keys {
			switch parts := strings.Split(key, "/"); {
			case len(parts) == 4 && parts[0] == "t":
				ids[key] = parts[2]
			case len(parts) == 5 && parts[0] == "t" && parts[2] == orchestrationBlobs:
				orchestrations = append(orchestrations, key)
			default:
				used[key] = true // not of our making: leave it
			}
		}
		err := s.blobsInUse(ctx, ids, orchestrations, func(key string) { used[key] = true })
		return used, err
	})
}

// ForgetIdempotencyKeys drops keys made before that time, in small steps.
func (s *Service) ForgetIdempotencyKeys(ctx context.Context, before time.Time) error {
	const step = 1000
	for {
		n, err := s.store.ForgetIdempotencyKeys(ctx, before, step)
		if err != nil || n < step {
			return err
		}
	}
}

// orchestrationBlobs is the second segment of the keys of orchestrations' payloads: no job has such an id.
const orchestrationBlobs = "orchestrations"

var null = json.RawMessage("null")
