package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/command/openai"
	"github.com/forebayhq/forebay/internal/sleep"
)

func batch(a *command.App) *cobra.Command {
	var o batchOptions
	run := a.Command(&cobra.Command{
		Use:   "run FILE.jsonl",
		Short: "Run a file of jobs and collect their results",
		Long: `Submit every line of a JSONL file as a job. Append each result to the output file as soon as the
job has ended, in any order, with the number of its line.

A line is a submit request: {"task":"summarize","input":"…","metadata":{…}}. It may leave out the
task if --task gives it.

Interrupted, or without its server, the command can be run again with the same files. Lines with
a result are not run again, and submitted lines are not submitted again. The exit code is 0 only
if every job succeeded.`,
		Example: `  forebay batch run documents.jsonl -o results.jsonl
  forebay batch run texts.jsonl -o vectors.jsonl --task embed --queue slow
  jq -r 'select(.status != "succeeded") | .line' results.jsonl`,
	}, func(c *command.Call) error {
		o.file = c.Args[0]
		return runBatch(c, o)
	})
	flags := run.Flags()
	// This flag replaces the global flag of the same name.
	flags.StringVarP(&o.out, "output", "o", "", "file the results are appended to (required)")
	flags.StringVar(&o.task, "task", "", "task of the lines that name none")
	flags.StringVar(&o.queue, "queue", "", "queue of the lines that name none")
	flags.IntVar(&o.waiters, "waiters", 32, "jobs waited for at once")
	return command.Group(&cobra.Command{Use: "batch", Short: "Run many jobs from a file, and batches of OpenAI's API"},
		append([]*cobra.Command{run}, openai.Batches(a)...)...)
}

type batchOptions struct {
	file, out   string
	task, queue string
	waiters     int
}

func runBatch(c *command.Call, o batchOptions) (err error) {
	if o.out == "" {
		return command.Usagef("--output is required: the file for the results")
	}
	switch o.out {
	case command.OutputTable, command.OutputJSON, command.OutputJSONL:
		return command.Usagef("--output of batch run is the file for the results, such as results.jsonl; "+
			"for a file of this name say ./%s", o.out)
	}
	if o.waiters < 1 || o.waiters > 1000 {
		return command.Usagef("--waiters must be 1 to 1000")
	}
	api, err := c.Patient()
	if err != nil {
		return err
	}
	file, err := openBatchFile(c.Ctx, o)
	if err != nil {
		return err
	}
	defer file.Close()
	lock := flock.New(o.out+".lock", flock.SetPermissions(0o600))
	if locked, err := lock.TryLock(); err != nil {
		return command.Usagef("cannot lock %s: %s", o.out, command.Cause(err))
	} else if !locked {
		return command.ExitError(command.ExitConflict, "another batch run is writing "+o.out)
	}
	defer func() { err = errors.Join(err, os.Remove(lock.Path()), lock.Unlock()) }()
	_, missing := os.Lstat(o.out)
	results, err := openResults(o.out, file.id, file.lines)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, results.Close())
		if err != nil && len(results.done) == 0 && errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(o.out)) // no results: leave no empty file
		}
	}()
	if err := reachable(c); err != nil {
		return unfinished(c, err, results, file)
	}
	b := &batchRun{api: api, file: file, results: results, bar: c.Bar("jobs", file.jobs, len(results.done))}
	b.changed = sync.NewCond(&b.mu)
	err = b.run(c.Ctx, o.waiters)
	b.bar.Finish()
	if err != nil {
		return unfinished(c, err, results, file)
	}
	if err := results.Sync(); err != nil {
		return unfinished(c, command.Failf("cannot write %s: %s", o.out, command.Cause(err)), results, file)
	}
	fmt.Fprintf(c.Err, "%d jobs: %d succeeded, %d did not\n", file.jobs, results.succeeded, file.jobs-results.succeeded)
	if results.succeeded < file.jobs {
		return command.ExitError(command.ExitFailed)
	}
	return nil
}

// unfinished adds to an error how far the run came and that it can be resumed.
func unfinished(c *command.Call, err error, results *resultsFile, file *batchFile) error {
	if c.Ctx.Err() != nil {
		err = command.ExitError(command.ExitInterrupted, "interrupted")
	}
	if c.ExitCode(c.Ctx, err) == command.ExitUsage {
		return err // running the same command again would not help
	}
	return c.Advise(c.Ctx, err, fmt.Sprintf("%d of %d done; run the same command again to go on", len(results.done), file.jobs))
}

// reachable fails quickly if the server cannot be reached. The client of the run itself waits much
// longer.
func reachable(c *command.Call) error {
	api, err := c.Client()
	if err != nil {
		return err
	}
	_, err = api.Tasks(c.Ctx)
	return err
}

// batchRun submits the lines that have no result yet, waits for their jobs and records the
// results. One goroutine submits. The others each wait for one job at a time and put back a job
// that takes long.
type batchRun struct {
	api     *client.Client
	file    *batchFile
	results *resultsFile
	bar     *command.Progress

	mu        sync.Mutex
	changed   *sync.Cond
	pending   []pendingJob
	waiting   int  // jobs that waiters have taken
	submitted bool // all lines have been submitted
	err       error
}

type pendingJob struct {
	line int
	id   string
}

func (b *batchRun) run(ctx context.Context, waiters int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The end of the context must wake the waiters, which block on the condition.
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		b.changed.Broadcast()
		b.mu.Unlock()
	})
	defer stop()
	var workers sync.WaitGroup
	work := func(do func(context.Context) error) {
		workers.Go(func() {
			if err := do(ctx); err != nil {
				b.mu.Lock()
				if b.err == nil {
					b.err = err
				}
				b.mu.Unlock()
				cancel(err)
			}
		})
	}
	work(b.submit)
	for range waiters {
		work(b.wait)
	}
	workers.Wait()
	return b.err
}

// submit sends the lines that have no result yet.
func (b *batchRun) submit(ctx context.Context) error {
	defer func() {
		b.mu.Lock()
		b.submitted = true
		b.changed.Broadcast()
		b.mu.Unlock()
	}()
	if len(b.results.done) == b.file.jobs {
		return nil
	}
	// Waiters add results while this goroutine still reads the file, so it looks up done lines in
	// a copy.
	lines := b.file.requests(b.results.doneLines())
	for result, err := range b.api.SubmitBulk(ctx, lines.each) {
		if err != nil {
			return err
		}
		line := lines.number(result.Line)
		switch {
		case result.Error != nil && !aboutLine(result.Error):
			return result.Error
		case result.Error != nil:
			err = b.record(batchResult{Line: line, Status: statusRejected, Error: &forebay.JobError{
				Class: forebay.ClassPermanent, Code: string(result.Error.Code), Message: result.Error.Error(),
			}})
		case result.Job == nil:
			err = fmt.Errorf("line %d: the server answered with neither a job nor an error", line)
		default:
			b.push(pendingJob{line, result.Job.ID})
		}
		if err != nil {
			return err
		}
	}
	if err := lines.err; err != nil {
		return err
	}
	return ctx.Err()
}

// aboutLine reports whether an error is the fault of one line. Any other error would fail every
// line.
func aboutLine(e *forebay.Error) bool {
	switch command.ExitCodeOf(e.Code) {
	case command.ExitUsage, command.ExitConflict, command.ExitNotFound:
		return true
	}
	return false
}

func (b *batchRun) push(job pendingJob) {
	b.mu.Lock()
	b.pending = append(b.pending, job)
	b.mu.Unlock()
	b.changed.Signal()
}

// next takes the job that has waited longest. It returns false when there are no more jobs.
func (b *batchRun) next(ctx context.Context) (job pendingJob, crowded, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) == 0 && ctx.Err() == nil {
		if b.submitted && b.waiting == 0 {
			return job, false, false
		}
		b.changed.Wait()
	}
	if ctx.Err() != nil {
		return job, false, false
	}
	job, b.pending = b.pending[0], b.pending[1:]
	b.waiting++
	return job, len(b.pending) > 0, true
}

func (b *batchRun) wait(ctx context.Context) error {
	for {
		job, crowded, ok := b.next(ctx)
		if !ok {
			return ctx.Err()
		}
		err := b.follow(ctx, job, crowded)
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		b.changed.Broadcast()
		if err != nil {
			return err
		}
	}
}

// follow waits for one job and records its result. If other jobs need a waiter it waits only
// briefly, because one of those may have ended already.
func (b *batchRun) follow(ctx context.Context, p pendingJob, crowded bool) error {
	patience := 30 * time.Second
	if crowded {
		patience = 2 * time.Second
	}
	start := time.Now()
	job, err := b.api.Poll(ctx, p.id, patience)
	if err != nil {
		return err
	}
	if !job.Status.Terminal() {
		// A server that is shutting down answers long polls at once.
		if err := sleep.For(ctx, time.Second-time.Since(start)); err != nil {
			return err
		}
		b.push(p)
		return nil
	}
	result := batchResult{
		Line: p.line, ID: job.ID, Status: job.Status, Result: job.Result, Error: job.Error,
		Usage: &job.Usage, CorrelationID: job.CorrelationID, Metadata: job.Metadata,
	}
	if job.Status == forebay.StatusSucceeded && !hasResult(job) {
		if result.Result, err = b.largeResult(ctx, job.ID); err != nil {
			return err
		}
	}
	return b.record(result)
}

func (b *batchRun) largeResult(ctx context.Context, id string) ([]byte, error) {
	r, err := b.api.Result(ctx, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxInputBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read result of %s: %w", id, err)
	case len(data) > maxInputBytes:
		return nil, forebay.Errorf(forebay.CodePayloadTooLarge, "the result of %s has more than %d bytes", id, maxInputBytes)
	}
	return data, nil
}

func (b *batchRun) record(r batchResult) error {
	if err := b.results.append(r); err != nil {
		return err
	}
	b.bar.Add()
	return nil
}
