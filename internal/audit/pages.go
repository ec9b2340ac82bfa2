package audit

import (
	"cmp"
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/listing"
)

// Page returns what operators did, newest first. With a filter a page may hold fewer entries than
// limit, or none, and not be the last.
func (s *Store) Page(ctx context.Context, f forebay.AuditFilter, limit int, cursor string) (forebay.Page[forebay.AuditEntry], error) {
	return listing.Below(limit, cursor, func(below int64, limit int) ([]forebay.AuditEntry, int64, error) {
		return s.Entries(ctx, f, below, limit)
	})
}

// MaxChunk is the most entries that one call of VerifyFrom verifies, and the default.
const MaxChunk = 10_000

// VerifyFrom checks the chain of entries from a head on ("": from the first entry), at most
// limit of them. The caller continues from the head in the answer until it is done.
func (s *Store) VerifyFrom(ctx context.Context, from string, limit int) (forebay.AuditVerification, error) {
	head, err := forebay.ParseAuditHead(from)
	if err != nil {
		return forebay.AuditVerification{}, err
	}
	if limit = cmp.Or(limit, MaxChunk); limit < 2 || limit > MaxChunk {
		return forebay.AuditVerification{}, forebay.Invalid("limit", "goes from 2 to %d", MaxChunk)
	}
	return s.Verify(ctx, head, limit)
}
