package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

func submit(a *command.App) *cobra.Command {
	var req forebay.SubmitRequest
	var input command.Content
	var isJSON, wait bool
	c := a.Command(&cobra.Command{
		Use:   "submit TASK [-]",
		Short: "Submit a job",
		Long: `Submit a job. It is on disk when the command returns. With --wait the command stays until the job
has ended and prints its result.

The input is text, unless --json is given or the file's name ends in .json. A lone "-" reads it
from standard input.`,
		Example: `  forebay submit summarize --file report.txt --wait
  forebay submit chat --input "Why is the sky blue?" --wait
  forebay submit classify --json --input '{"text":"…","labels":["spam","ham"]}'
  cat notes.txt | forebay submit extract - --metadata source=notes --priority 9
  forebay submit summarize --file report.txt --scheduled-at 2h --deadline 24h`,
	}, func(c *command.Call) error {
		if len(c.Args) == 2 {
			if c.Args[1] != "-" {
				return command.Usagef("unexpected argument %q; give the input by --input, --file or -", c.Args[1])
			}
			if c.Flags.Changed("file") {
				return command.Usagef("give the input once: by --file or by -")
			}
			input.File = "-"
		}
		data, given, err := input.Read(c, maxInputBytes)
		if err != nil {
			return err
		}
		if !given {
			return command.Usagef("the input is missing; give it by --input, --file or -")
		}
		req.Task = c.Args[0]
		if req.Input, err = asInput(data, isJSON || namesJSON(input.File)); err != nil {
			return err
		}
		return submitOne(c, req, wait)
	})
	flags := c.Flags()
	input.Add(flags, "input", "input", "file", "the input itself")
	flags.BoolVar(&isJSON, "json", false, "the input is JSON, not text")
	flags.BoolVar(&wait, "wait", false, "wait until the job has ended and print its result")
	flags.StringVar(&req.Queue, "queue", "", "queue (default: the task's)")
	command.OptionalFlag(flags, &req.Priority, "priority", command.WholeNumber, "0 (last) to 9 (first) (default "+strconv.Itoa(forebay.DefaultPriority)+")")
	command.OptionalFlag(flags, &req.SessionID, "session-id", command.AnyText, "jobs of a session run one after the other, as they were submitted")
	command.OptionalFlag(flags, &req.CorrelationID, "correlation-id", command.AnyText, "id of yours that attempts, events and logs carry")
	a.TimeFlag(flags, &req.ScheduledAt, "scheduled-at", "start not before this time, or after this long")
	a.TimeFlag(flags, &req.Deadline, "deadline", "expire at this time, or after this long")
	command.OptionalFlag(flags, &req.MaxAttempts, "max-attempts", command.WholeNumber, "attempts in all (default: the queue's)")
	command.OptionalFlag(flags, &req.MaxCostUSD, "max-cost-usd", command.Dollars, "what the job may cost, in US dollars")
	command.OptionalFlag(flags, &req.MaxTotalTokens, "max-total-tokens", command.WholeNumber64, "tokens that all attempts may use, input and output together")
	command.MetadataFlag(flags, &req.Metadata, " to keep with the job")
	flags.StringVar(&req.IdempotencyKey, "idempotency-key", "", "submitting again with the same key makes no second job")
	flags.StringVar(&req.Traceparent, "traceparent", "", "W3C trace context")
	return c
}

func submitOne(c *command.Call, req forebay.SubmitRequest, wait bool) error {
	api, err := c.Client()
	if err != nil {
		return err
	}
	job, _, err := api.Submit(c.Ctx, req)
	switch {
	case err != nil:
		return err
	case !wait:
		return c.PrintLine(job, "%s %s", job.ID, job.Status)
	}
	if api, err = c.Patient(); err != nil {
		return err
	}
	id := job.ID
	if job, err = awaitJob(c, api, id); err != nil {
		return c.StillThere(c.Ctx, err, "the job", "forebay jobs show "+id)
	}
	if c.Output != command.OutputTable {
		err = c.PrintJSON(job)
	} else if job.Status == forebay.StatusSucceeded {
		if err = printResult(c, api, job); err != nil {
			err = c.Advise(c.Ctx, err, "the job has succeeded: forebay jobs result "+id)
		}
	}
	if err != nil {
		return err
	}
	return ended(job)
}

// ended returns the error of a job that ended without a result.
func ended(job forebay.Job) error {
	switch {
	case job.Status == forebay.StatusSucceeded:
		return nil
	case job.Error != nil:
		return command.Failf("%s %s: %s: %s", job.ID, job.Status, job.Error.Code, job.Error.Message)
	}
	return command.Failf("%s %s", job.ID, job.Status)
}
