package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// auditLog is the part of Client about the audit log.
type auditLog struct{ *endpoint }

// Audit returns what operators did, newest first. It reads pages as they are needed. limit is the
// page size; 0 leaves it to the server.
func (c *auditLog) Audit(ctx context.Context, f forebay.AuditFilter, limit int) iter.Seq2[forebay.AuditEntry, error] {
	query := url.Values{}
	set(query, "tenant", f.Tenant)
	set(query, "actor", f.Actor)
	set(query, "action", f.Action)
	setPage(query, f.CreatedAfter, f.CreatedBefore, limit, "")
	return pages[forebay.AuditEntry](ctx, c.endpoint, path("audit"), query)
}

// VerifyAudit makes the server check the chain of its audit log in parts. The check begins at the
// head from, or at the first entry if from is "". It stops at the end or at the first entry that
// was changed.
func (c *auditLog) VerifyAudit(ctx context.Context, from string) (forebay.AuditVerification, error) {
	var whole forebay.AuditVerification
	for {
		query := url.Values{}
		set(query, "from", from)
		var part forebay.AuditVerification
		if err := c.call(ctx, request{method: http.MethodGet, path: path("audit", "verify"), query: query}, &part); err != nil {
			return whole, err
		}
		part.Checked += whole.Checked
		if whole.Checked > 0 {
			part.Checked-- // the part before has counted this entry
		}
		stuck := part.Head == from
		whole, from = part, part.Head
		if part.Done || !part.Intact {
			return whole, nil
		}
		if stuck {
			return whole, errNotForebay
		}
	}
}
