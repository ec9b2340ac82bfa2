package jobs

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/listing"
)

// Audit returns what operators did, newest first. With a filter a page may hold fewer than limit, or nothing, and not be the last.
func (s *Service) Audit(ctx context.Context, f forebay.AuditFilter, limit int, cursor string) (forebay.Page[forebay.AuditEntry], error) {
	return listing.Below(limit, cursor, func(below int64, limit int) ([]forebay.AuditEntry, int64, error) {
		return s.log.Entries(ctx, f, below, limit)
	})
}

// RecordSimFaults notes that the faults of a simulated deployment were set, which the process alone
// remembers.
func (s *Service) RecordSimFaults(ctx context.Context, deployment string, faults json.RawMessage, actor string) error {
	return s.log.Record(ctx, audit.Act{Actor: actor, Action: "set-sim-faults", Target: deployment, Detail: string(faults)})
}

// MaxAuditChunk bounds how many entries one call verifies; so many is also the default.
const MaxAuditChunk = 10_000

// VerifyAudit checks the chain of audit entries from a head on ("": from the first entry), at most
// limit of them. The caller goes on from the head in the answer until it is done.
func (s *Service) VerifyAudit(ctx context.Context, from string, limit int) (forebay.AuditVerification, error) {
	head, err := forebay.ParseAuditHead(from)
	if err != nil {
		return forebay.AuditVerification{}, err
	}
	if limit = cmp.Or(limit, MaxAuditChunk); limit < 2 || limit > MaxAuditChunk {
		return forebay.AuditVerification{}, forebay.Invalid("limit", "goes from 2 to %d", MaxAuditChunk)
	}
	return s.log.Verify(ctx, head, limit)
}
