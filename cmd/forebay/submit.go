package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

func (a *app) submit() *cobra.Command {
	var req forebay.SubmitRequest
	var input content
	var isJSON, wait bool
	c := a.command(&cobra.Command{
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
	}, func(c *call) error {
		if len(c.args) == 2 {
			if c.args[1] != "-" {
				return usagef("unexpected argument %q; give the input by --input, --file or -", c.args[1])
			}
			if c.flags.Changed("file") {
				return usagef("give the input once: by --file or by -")
			}
			input.file = "-"
		}
		data, given, err := input.read(c, maxInputBytes)
		if err != nil {
			return err
		}
		if !given {
			return usagef("the input is missing; give it by --input, --file or -")
		}
		req.Task = c.args[0]
		if req.Input, err = asInput(data, isJSON || namesJSON(input.file)); err != nil {
			return err
		}
		return a.submitOne(c.ctx, req, wait)
	})
	flags := c.Flags()
	input.add(flags, "input", "input", "file", "the input itself")
	flags.BoolVar(&isJSON, "json", false, "the input is JSON, not text")
	flags.BoolVar(&wait, "wait", false, "wait until the job has ended and print its result")
	flags.StringVar(&req.Queue, "queue", "", "queue (default: the task's)")
	optionalFlag(flags, &req.Priority, "priority", wholeNumber, "0 (last) to 9 (first) (default "+strconv.Itoa(forebay.DefaultPriority)+")")
	optionalFlag(flags, &req.SessionID, "session-id", anyText, "jobs of a session run one after the other, as they were submitted")
	optionalFlag(flags, &req.CorrelationID, "correlation-id", anyText, "id of yours that attempts, events and logs carry")
	a.timeFlag(flags, &req.ScheduledAt, "scheduled-at", "start not before this time, or after this long")
	a.timeFlag(flags, &req.Deadline, "deadline", "expire at this time, or after this long")
	optionalFlag(flags, &req.MaxAttempts, "max-attempts", wholeNumber, "attempts in all (default: the queue's)")
	optionalFlag(flags, &req.MaxCostUSD, "max-cost-usd", dollars, "what the job may cost, in US dollars")
	optionalFlag(flags, &req.MaxTotalTokens, "max-total-tokens", wholeNumber64, "tokens that all attempts may use, input and output together")
	metadataFlag(flags, &req.Metadata, " to keep with the job")
	flags.StringVar(&req.IdempotencyKey, "idempotency-key", "", "submitting again with the same key makes no second job")
	flags.StringVar(&req.Traceparent, "traceparent", "", "W3C trace context")
	return c
}

func (a *app) submitOne(ctx context.Context, req forebay.SubmitRequest, wait bool) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	job, _, err := api.Submit(ctx, req)
	switch {
	case err != nil:
		return err
	case !wait && a.output == outputTable:
		return a.say("%s %s", job.ID, job.Status)
	case !wait:
		return a.printJSON(job)
	}
	if api, err = a.patient(); err != nil {
		return err
	}
	id := job.ID
	if job, err = a.awaitJob(ctx, api, id); err != nil {
		return a.stillThere(ctx, err, "the job", "forebay jobs show "+id)
	}
	if a.output != outputTable {
		err = a.printJSON(job)
	} else if job.Status == forebay.StatusSucceeded {
		if err = a.printResult(ctx, api, job); err != nil {
			err = a.advise(ctx, err, "the job has succeeded: forebay jobs result "+id)
		}
	}
	if err != nil {
		return err
	}
	return ended(job)
}

// ended is the error of a job that ended without a result.
func ended(job forebay.Job) error {
	switch {
	case job.Status == forebay.StatusSucceeded:
		return nil
	case job.Error != nil:
		return failf("%s %s: %s: %s", job.ID, job.Status, job.Error.Code, job.Error.Message)
	}
	return failf("%s %s", job.ID, job.Status)
}
