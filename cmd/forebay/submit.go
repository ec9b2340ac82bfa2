package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/sleep"
)

func (a *app) submit() *cobra.Command {
	var f submitFlags
	c := &cobra.Command{
		Use:   "submit TASK [-]",
		Short: "Submit a job",
		Long: `Submit a job. It is on disk when the command returns; with --wait the command stays until the job has
ended and prints its result.

The input is text unless --json is given or the file's name ends in .json. A lone "-" reads it from
standard input.`,
		Example: `  forebay submit summarize --file report.txt --wait
  forebay submit chat --input "Why is the sky blue?" --wait
  forebay submit classify --json --input '{"text":"…","labels":["spam","ham"]}'
  cat notes.txt | forebay submit extract - --metadata source=notes --priority 9
  forebay submit summarize --file report.txt --scheduled-at 2h --deadline 24h`,
		Args: arguments(1, "TASK", "-"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				if args[1] != "-" {
					return usagef("unexpected argument %q; give the input by --input, --file or -", args[1])
				}
				if c.Flags().Changed("file") {
					return usagef("give the input once: by --file or by -")
				}
				f.file = "-"
			}
			req, err := f.request(a, c, args[0])
			if err != nil {
				return err
			}
			return a.submitOne(c.Context(), req, f.wait)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.input, "input", "", "the input itself")
	flags.StringVar(&f.file, "file", "", "file with the input; - is standard input")
	flags.BoolVar(&f.json, "json", false, "the input is JSON, not text")
	flags.BoolVar(&f.wait, "wait", false, "wait until the job has ended and print its result")
	flags.StringVar(&f.queue, "queue", "", "queue (default: the task's)")
	flags.IntVar(&f.priority, "priority", forebay.DefaultPriority, "0 (last) to 9 (first)")
	flags.StringVar(&f.session, "session-id", "", "jobs of one session run one after the other, in the order they were submitted")
	flags.StringVar(&f.correlation, "correlation-id", "", "id of yours that attempts, events and logs carry")
	flags.StringVar(&f.scheduledAt, "scheduled-at", "", "start not before this time, or after this long")
	flags.StringVar(&f.deadline, "deadline", "", "expire at this time, or after this long")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "attempts in all (default: the queue's)")
	flags.Float64Var(&f.maxCost, "max-cost-usd", 0, "what the job may cost, in US dollars")
	flags.Int64Var(&f.maxTokens, "max-total-tokens", 0, "tokens that the job may use, input and output of all attempts together")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "key=value to keep with the job; may be repeated")
	flags.StringVar(&f.idempotency, "idempotency-key", "", "submitting again with the same key makes no second job")
	flags.StringVar(&f.traceparent, "traceparent", "", "W3C trace context")
	return c
}

// submitFlags are what a job is made of.
type submitFlags struct {
	input, file              string
	json, wait               bool
	queue, correlation       string
	session                  string
	priority, maxAttempts    int
	scheduledAt, deadline    string
	maxCost                  float64
	maxTokens                int64
	metadata                 []string
	idempotency, traceparent string
}

func (f *submitFlags) request(a *app, c *cobra.Command, task string) (forebay.SubmitRequest, error) {
	req := forebay.SubmitRequest{Task: task, Queue: f.queue, IdempotencyKey: f.idempotency, Traceparent: f.traceparent}
	changed := c.Flags().Changed
	var data []byte
	var err error
	switch {
	case changed("input") && f.file != "":
		return req, usagef("give the input once: by --input, --file or -")
	case changed("input"):
		data = []byte(f.input)
	case f.file != "":
		if data, err = a.readFile(c.Context(), f.file, maxInputBytes); err != nil {
			return req, err
		}
	default:
		return req, usagef("the input is missing; give it by --input, --file or -")
	}
	if req.Input, err = asInput(data, f.json || namesJSON(f.file)); err != nil {
		return req, err
	}
	if changed("priority") {
		req.Priority = &f.priority
	}
	if changed("session-id") {
		req.SessionID = &f.session
	}
	if changed("correlation-id") {
		req.CorrelationID = &f.correlation
	}
	if changed("max-attempts") {
		req.MaxAttempts = &f.maxAttempts
	}
	if changed("max-cost-usd") {
		limit := forebay.USD(f.maxCost)
		req.MaxCostUSD = &limit
	}
	if changed("max-total-tokens") {
		req.MaxTotalTokens = &f.maxTokens
	}
	if req.ScheduledAt, err = a.parseTime("scheduled-at", f.scheduledAt, false); err != nil {
		return req, err
	}
	if req.Deadline, err = a.parseTime("deadline", f.deadline, false); err != nil {
		return req, err
	}
	req.Metadata, err = parseMetadata(f.metadata)
	return req, err
}

func (a *app) submitOne(ctx context.Context, req forebay.SubmitRequest, wait bool) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	job, _, err := api.Submit(ctx, req)
	if err != nil {
		return err
	}
	if !wait {
		if a.output == outputTable {
			_, err = fmt.Fprintf(a.out, "%s %s\n", job.ID, job.Status)
			return err
		}
		return a.printJob(job)
	}
	if api, err = a.patient(); err != nil {
		return err
	}
	id := job.ID
	if job, err = a.awaitJob(ctx, api, id); err != nil {
		if ctx.Err() != nil {
			return &failure{exitInterrupted, "interrupted; the job goes on: forebay jobs get " + id}
		}
		return a.advise(ctx, err, "the job is on disk: forebay jobs get "+id)
	}
	if a.output != outputTable {
		if err := a.printJob(job); err != nil {
			return err
		}
	} else if job.Status == forebay.StatusSucceeded {
		if err := a.printResult(ctx, api, job); err != nil {
			return a.advise(ctx, err, "the job has succeeded: forebay jobs result "+id)
		}
	}
	return ended(job)
}

const (
	// firstLook is how long a job may take before it is said what it waits for, and laterLooks how often that may change.
	firstLook  = 2 * time.Second
	laterLooks = 10 * time.Second
)

// awaitJob waits for the end of a job, and says on standard error what it waits for.
func (a *app) awaitJob(ctx context.Context, api *client.Client, id string) (forebay.Job, error) {
	said := ""
	for patience := firstLook; ; patience = laterLooks {
		begun := time.Now()
		job, err := api.Poll(ctx, id, patience)
		if err != nil || job.Status.Terminal() {
			return job, err
		}
		if why := waitsFor(job); why != said {
			fmt.Fprintf(a.err, "forebay: %s %s\n", id, why)
			said = why
		}
		// A server that stops ends long polls early; it must not be asked in a tight loop.
		if time.Since(begun) < time.Second && sleep.For(ctx, time.Second) != nil {
			return job, ctx.Err()
		}
	}
}

// waitReasons say what a job waits for.
var waitReasons = map[forebay.WaitReason]string{
	forebay.WaitQuota:       "waits for the provider's quota",
	forebay.WaitBreaker:     "waits for its deployment, whose circuit breaker is open (forebay deployments list)",
	forebay.WaitBudget:      "waits for its budget (forebay tenants show)",
	forebay.WaitPaused:      "waits, for its queue, tenant or deployment is paused",
	forebay.WaitConcurrency: "waits until fewer calls are under way",
	forebay.WaitSession:     "waits for another job of its session",
	forebay.WaitSchedule:    "waits for its time",
	forebay.WaitWorker:      "waits for a worker that knows its task",
}

// waitsFor says what a job that is not over waits for, and what went wrong before.
func waitsFor(job forebay.Job) string {
	why := "is " + string(job.Status)
	if job.WaitingFor != nil {
		why = cmp.Or(waitReasons[*job.WaitingFor], "waits for "+string(*job.WaitingFor))
	}
	if job.Error != nil {
		why += fmt.Sprintf("; the last attempt: %s: %s", job.Error.Code, job.Error.Message)
	}
	return why
}

// printResult writes a succeeded job's result and a line end.
func (a *app) printResult(ctx context.Context, api *client.Client, job forebay.Job) error {
	if job.Result != nil && string(job.Result) != "null" {
		_, err := fmt.Fprintf(plainJSON(a.out), "%s\n", job.Result)
		return err
	}
	return a.copyResult(ctx, api, job.ID)
}

func (a *app) copyResult(ctx context.Context, api *client.Client, id string) error {
	result, err := api.Result(ctx, id)
	if err != nil {
		return err
	}
	defer result.Close()
	if _, err := io.Copy(plainJSON(a.out), result); err != nil {
		return fmt.Errorf("read result: %w", err)
	}
	_, err = fmt.Fprintln(a.out)
	return err
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
