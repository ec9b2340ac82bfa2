package main

import (
	"iter"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// auditCommands are the commands about the audit log.
type auditCommands struct{ *command.App }

func (a auditCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "audit", Short: "See what operators did and which jobs failed, and whether that record is whole",
		Long: `Every act of an operator is recorded in the same transaction as the act: keys, pauses, redrives,
purges, changes of queues, topics and webhooks. So is each job that fails for good.
audit.job_events in the server's configuration names other events of jobs to record. The record
is a chain of hashes and is only ever added to.`,
	}, a.list(), a.verify())
}

func (a auditCommands) list() *cobra.Command {
	var f forebay.AuditFilter
	c := command.Page(a.App, &cobra.Command{
		Use: "list", Short: "List what operators did and what happened to jobs, newest first",
		Example: `  forebay audit list --action purge --limit 0 -o jsonl
  forebay audit list --action dead_lettered
  forebay audit list --after 2030-01-02T14:00:00Z --before 2030-01-02T15:00:00Z`,
	}, func(c *command.Call, pageSize int) iter.Seq2[forebay.AuditEntry, error] {
		return c.API.Audit(c.Ctx, f, pageSize)
	}, func(e forebay.AuditEntry) []command.Field {
		return []command.Field{
			{"NO", command.Count(e.Number)}, {"AT", a.Instant(e.At)}, {"TENANT", e.Tenant}, {"ACTOR", e.Actor},
			{"ACTION", e.Action}, {"TARGET", e.Target}, {"DETAIL", command.Shorten(e.Detail, 60)},
		}
	})
	c.Flags().StringVar(&f.Tenant, "tenant", "", "only of this tenant")
	c.Flags().StringVar(&f.Actor, "actor", "", "only by the API key with this id; forebay: what happened to jobs and budgets")
	c.Flags().StringVar(&f.Action, "action", "", "only acts or events of this kind, such as purge or dead_lettered")
	periodFlags(a.App, c.Flags(), &f.CreatedBefore, &f.CreatedAfter, "recorded")
	return c
}

func (a auditCommands) verify() *cobra.Command {
	var from string
	c := a.APICommand(&cobra.Command{
		Use: "verify", Short: "Check that no entry of the audit log was changed or removed",
		Long: `Follow the chain of the audit log and name the first entry that is not as it was written. The
exit code is 1 then.

Keep the printed head somewhere else. Given by --from, it proves later that nothing up to there
was changed since, not even by somebody who can write to the database.`,
		Example: `  forebay audit verify
  forebay audit verify --from 412:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
	}, func(c *command.Call) error {
		found, err := c.API.VerifyAudit(c.Ctx, from)
		if err != nil {
			return err
		}
		state := "intact"
		if !found.Intact {
			state = "broken"
		}
		if err := c.PrintOne(found, []command.Field{{"audit log", state}, {"checked", command.Count(found.Checked)}, {"head", found.Head}}); err != nil {
			return err
		}
		if found.Broken != nil {
			return command.Failf("the audit log is broken at entry %d: %s", found.Broken.Number, found.Broken.Reason)
		}
		return nil
	})
	c.Flags().StringVar(&from, "from", "", "begin at this head instead of the first entry")
	return c
}
