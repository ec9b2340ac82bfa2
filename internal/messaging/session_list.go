package messaging

import (
	"cmp"
	"context"
	"encoding/base64"

	"github.com/forebayhq/forebay"
)

// List returns a page of the sessions of a queue or subscription, by id.
func (s Sessions) List(ctx context.Context, tenant, path, cursor string, limit int) (page forebay.Page[forebay.SessionInfo], err error) {
	e, err := s.entityNow(ctx, tenant, path)
	if err != nil {
		return page, err
	}
	if !e.RequiresSession || e.deadLetter {
		return page, errNoSessions
	}
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(after) > 4*forebay.MaxIDCharacters {
		return page, &forebay.Error{Code: forebay.CodeInvalidCursor, Field: "cursor", Message: "is not a next_cursor of this list"}
	}
	limit = min(max(cmp.Or(limit, forebay.DefaultPageSize), 1), forebay.MaxPageSize)
	rows, err := s.store.Sessions().ListSessions(ctx, e.MessageQueue, string(after), limit+1)
	if err != nil {
		return page, err
	}
	if len(rows) > limit {
		rows = rows[:limit]
		page.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(rows[limit-1].ID))
	}
	for _, r := range rows {
		page.Items = append(page.Items, forebay.SessionInfo{SessionID: r.ID, HasMessages: r.HasMessages, LockedUntil: r.LockedUntil, StateBytes: r.StateBytes})
	}
	return page, nil
}
