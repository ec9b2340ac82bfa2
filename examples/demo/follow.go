package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// demo is one run.
type demo struct {
	server *server
	docs   []document
	jobs   []string // ids
	start  time.Time
	done   int

	brownedOut, killed bool
}

var tasks = []string{"summarize", "classify", "embed"}

// correlation marks the jobs of this run.
const correlation = "demo"

func (d *demo) requests() iter.Seq[forebay.SubmitRequest] {
	return func(yield func(forebay.SubmitRequest) bool) {
		id := correlation
		for _, doc := range d.docs {
			input, err := json.Marshal(doc.text)
			if err != nil {
				panic(err) // a string is always JSON
			}
			for _, task := range tasks {
				if !yield(forebay.SubmitRequest{Task: task, Input: input, CorrelationID: &id,
					IdempotencyKey: task + " " + doc.name, Metadata: map[string]string{"document": doc.name}}) {
					return
				}
			}
		}
	}
}

func (d *demo) submit(ctx context.Context) error {
	d.start = time.Now()
	for result, err := range d.server.client.SubmitBulk(ctx, d.requests()) {
		if err != nil {
			return err
		}
		if result.Error != nil {
			return result.Error
		}
		d.jobs = append(d.jobs, result.Job.ID)
	}
	fmt.Printf("%d jobs are on disk after %s.\n", len(d.jobs), time.Since(d.start).Round(time.Millisecond))
	return nil
}

// follow shows progress until every job has ended, with a brown-out and a kill on the way.
func (d *demo) follow(ctx context.Context) error {
	var calm json.RawMessage
	var since time.Time // the beginning of the brown-out
	for {
		if err := d.progress(ctx); err != nil {
			return err
		}
		total := len(d.jobs)
		switch {
		case d.done == total:
			d.line("")
			return nil
		case !d.brownedOut && d.done > total/5:
			var err error
			if calm, err = d.brownOut(ctx); err != nil {
				return err
			}
			d.brownedOut, since = true, time.Now()
		case calm != nil && time.Since(since) > 4*time.Second:
			d.say("The model recovers.")
			if err := d.server.client.SetSimFaults(ctx, "simulated", calm); err != nil {
				return err
			}
			calm = nil
		case !d.killed && calm == nil && d.done > total/2:
			d.killed = true
			d.say("kill -9: the server dies in the middle of its calls. It is started again on the same file.")
			d.server.kill()
			if err := d.server.start(ctx); err != nil {
				return err
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not finished in time: %d of %d jobs have ended", d.done, total)
		}
	}
}

// brownOut makes most calls fail and returns the settings from before.
func (d *demo) brownOut(ctx context.Context) (before json.RawMessage, err error) {
	d.say("Now the model gets worse. A brown-out: for four seconds, most calls fail with 503.")
	return worsen(ctx, d.server.client, "simulated")
}

// worsen lets most calls of a deployment fail and returns the settings from before.
func worsen(ctx context.Context, c *client.Client, deployment string) (before json.RawMessage, err error) {
	if before, err = c.SimFaults(ctx, deployment); err != nil {
		return nil, err
	}
	faults := map[string]any{}
	if err := json.Unmarshal(before, &faults); err != nil {
		return nil, err
	}
	faults["error_rate"] = 0.85
	worse, err := json.Marshal(faults)
	if err != nil {
		return nil, err
	}
	return before, c.SetSimFaults(ctx, deployment, worse)
}

// progress counts how the jobs stand and shows it.
func (d *demo) progress(ctx context.Context) error {
	counts, ended := map[forebay.Status]int{}, 0
	for job, err := range d.server.client.List(ctx, forebay.JobFilter{CorrelationID: correlation, Limit: forebay.MaxPageSize}) {
		if err != nil {
			return err
		}
		counts[job.Status]++
		if job.Status.Terminal() {
			ended++
		}
	}
	d.done = ended
	const width = 30
	filled := width * ended / max(1, len(d.jobs))
	var rest []string
	for _, status := range forebay.Statuses {
		if counts[status] > 0 {
			rest = append(rest, fmt.Sprintf("%s %d", status, counts[status]))
		}
	}
	d.line(fmt.Sprintf("%5.1fs [%s%s] %d/%d  %s", time.Since(d.start).Seconds(), strings.Repeat("=", filled), strings.Repeat(" ", width-filled),
		ended, len(d.jobs), strings.Join(rest, ", ")))
	return nil
}

var onTerminal = term.IsTerminal(int(os.Stdout.Fd()))

// line shows the current state in place on a terminal; elsewhere as a line now and then.
func (d *demo) line(text string) {
	if onTerminal {
		fmt.Printf("\r\x1b[K%s", text)
		return
	}
	if text != "" && time.Since(lastLine) > 2*time.Second {
		lastLine = time.Now()
		fmt.Println(text)
	}
}

var lastLine time.Time

func (d *demo) say(text string) {
	if onTerminal {
		fmt.Print("\r\x1b[K")
	}
	fmt.Println(text)
}
