package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// NewJobs validates requests whose jobs the caller stores as a part of a transition of its own. Their inputs
// must be small enough to stay in the database.
func (s *Service) NewJobs(ctx context.Context, tenant string, reqs []forebay.SubmitRequest) ([]store.NewJob, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := make([]store.NewJob, len(reqs))
	for i := range reqs {
		if list[i], err = s.newJob(ctx, tenant, no, &reqs[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Abort ends the calls of this process whose locks a transition of the caller's voided.
func (s *Service) Abort(tokens []int64) {
	for _, token := range tokens {
		s.abort(token)
	}
}

// NewID returns an id that nobody can guess, with that prefix.
func NewID(prefix string) string { return newID(prefix) }

// EncodeCursor is the cursor of a list that goes on below a number; "" for 0.
func EncodeCursor(no int64) string { return encodeCursor(no) }

// DecodeCursor is the opposite. An error is CodeInvalidCursor.
func DecodeCursor(cursor string) (int64, error) { return decodeCursor(cursor) }

// EncodeMetadata checks a client's metadata and makes what is stored of it; nil for none.
func EncodeMetadata(metadata map[string]string) ([]byte, error) { return encodeMetadata(metadata) }
