package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/store"
)

func asForebay(err error, target **forebay.Error) bool { return errors.As(err, target) }

// uploadTimeout bounds one upload; the sweep takes none for an orphan that is younger than an hour.
const uploadTimeout = 5 * time.Minute

// checkIn puts a payload over the inline limit into blob storage (claim-check) and returns what the
// database keeps: the bytes, or the key.
func (s *Service) checkIn(ctx context.Context, tenant int64, id, kind string, payload []byte) (inline []byte, key string, err error) {
	if len(payload) <= forebay.InlineBytes {
		return payload, "", nil
	}
	// A new key each time: a late writer can never change what another one recorded.
	key = blob.Key(tenant, id, kind+"-"+NewID(""))
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if err := s.blobs.Put(ctx, key, bytes.NewReader(payload), int64(len(payload))); err != nil {
		return nil, "", err
	}
	return nil, key, nil
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
// Only blobs older than an hour are looked at: no upload takes that long to be recorded.
func (s *Service) SweepBlobs(ctx context.Context) (removed int, err error) {
	return s.blobs.Sweep(ctx, time.Now().Add(-time.Hour), func(keys []string) (map[string]bool, error) {
		ids := map[string]string{}
		var orchestrations []string
		used := map[string]bool{}
		for _, key := range keys {
			switch parts := strings.Split(key, "/"); {
			case len(parts) == 4 && parts[0] == "t":
				ids[key] = parts[2]
			case len(parts) == 5 && parts[0] == "t" && parts[2] == store.OrchestrationBlobs:
				orchestrations = append(orchestrations, key)
			default:
				used[key] = true // not of our making: leave it
			}
		}
		err := s.store.BlobsInUse(ctx, ids, orchestrations, func(key string) { used[key] = true })
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

var null = json.RawMessage("null")
