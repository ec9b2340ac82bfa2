package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type auditQuery struct {
	Tenant string `query:"tenant" doc:"only of this tenant"`
	Actor  string `query:"actor" doc:"only by this API key; forebay: events of jobs and budgets"`
	Action string `query:"action" doc:"only acts or events of this kind, such as pause or dead_lettered"`
	CreatedInput
	PageInput
}

type verifyAuditQuery struct {
	From  string `query:"from" maxLength:"100" doc:"head of the answer before, or one kept from earlier; default: the first entry"`
	Limit int    `query:"limit" minimum:"2" maximum:"10000" doc:"entries to look at; default 10000"`
}

func (a *API) routeAudit() {
	tags := []string{"audit"}
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tags: tags,
		Summary: "List what operators did and what happened to jobs, newest first", Description: "Of all tenants. Entries are only ever added. One call looks at 100,000 entries at most: a page may hold few or none and " +
			"have a next_cursor all the same. A list by time goes straight to its entries.",
	}, func(ctx context.Context, _ *call, in *auditQuery) (*answer[forebay.Page[forebay.AuditEntry]], error) {
		after, before := in.bounds()
		f := forebay.AuditFilter{Tenant: in.Tenant, Actor: in.Actor, Action: in.Action, CreatedAfter: after, CreatedBefore: before}
		return pageAnswer(a.audit.Page(ctx, f, in.Limit, in.Cursor))
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Tags: tags,
		Summary: "Check part of the audit log's chain",
		Description: "Each entry's hash covers the entry and the hash before it. Go on from head until done. A head that was kept elsewhere " +
			"proves that nothing before it was changed or removed since, not even by who can write to the database.",
	}, func(ctx context.Context, _ *call, in *verifyAuditQuery) (*answer[forebay.AuditVerification], error) {
		return answerOf(a.audit.VerifyFrom(ctx, in.From, in.Limit))
	})
}
