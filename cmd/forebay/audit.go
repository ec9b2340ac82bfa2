package main

import (
	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

func (a *app) audit() *cobra.Command {
	return a.group("audit", "See what operators did and which jobs failed, and whether that record is whole",
		`Every act of an operator is recorded in the same transaction as the act: keys, pauses, redrives, purges,
changes of queues, topics and webhooks. So is each job that fails for good, or whatever events of jobs audit.job_events in the server's
configuration names. The record is a chain of hashes and is only ever added to.`,
		a.auditList(), a.auditVerify())
}

func (a *app) auditList() *cobra.Command {
	var f forebay.AuditFilter
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List what operators did and what happened to jobs, newest first", Args: arguments(0),
		Example: "  forebay audit list --action purge --limit 0 -o jsonl\n  forebay audit list --action dead_lettered",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return printList(a, api.Audit(c.Context(), f, pageSize(limit)), limit, []column[forebay.AuditEntry]{
				{"NO", func(e forebay.AuditEntry) string { return count(e.Number) }},
				{"AT", func(e forebay.AuditEntry) string { return e.At.In(a.zone).Format("2006-01-02 15:04:05") }},
				{"TENANT", func(e forebay.AuditEntry) string { return e.Tenant }},
				{"ACTOR", func(e forebay.AuditEntry) string { return e.Actor }},
				{"ACTION", func(e forebay.AuditEntry) string { return e.Action }},
				{"TARGET", func(e forebay.AuditEntry) string { return e.Target }},
				{"DETAIL", func(e forebay.AuditEntry) string { return shorten(e.Detail, 60) }},
			})
		},
	}
	c.Flags().StringVar(&f.Tenant, "tenant", "", "only of this tenant")
	c.Flags().StringVar(&f.Actor, "actor", "", "only by the API key with this id; forebay: what happened to jobs and budgets")
	c.Flags().StringVar(&f.Action, "action", "", "only acts or events of this kind, such as purge or dead_lettered")
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return c
}

func (a *app) auditVerify() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use: "verify", Short: "Check that no entry of the audit log was changed or removed", Args: arguments(0),
		Long: `Follow the chain of the audit log and name the first entry that is not as it was written; the exit code
is then 1. Keep the head that is printed somewhere else: given by --from it proves later that nothing
up to there was changed since, not even by somebody who can write to the database.`,
		Example: "  forebay audit verify\n  forebay audit verify --from 412:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			found, err := api.VerifyAudit(c.Context(), from)
			if err != nil {
				return err
			}
			state := "intact"
			if !found.Intact {
				state = "broken"
			}
			if err := a.printOne(found, [][2]string{{"audit log", state}, {"checked", count(found.Checked)}, {"head", found.Head}}); err != nil {
				return err
			}
			if found.Broken != nil {
				return failf("the audit log is broken at entry %d: %s", found.Broken.Number, found.Broken.Reason)
			}
			return nil
		},
	}
	c.Flags().StringVar(&from, "from", "", "begin at this head instead of the first entry")
	return c
}
