package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forebayhq/forebay"
)

// conclude prints what became of the jobs and fails if one did not end as it should.
func (d *demo) conclude(ctx context.Context) error {
	took := time.Since(d.start)
	var usage forebay.Usage
	statuses, wrong := map[forebay.Status]int{}, 0
	for job, err := range d.server.client.List(ctx, forebay.JobFilter{CorrelationID: correlation, Limit: forebay.MaxPageSize}) {
		if err != nil {
			return err
		}
		statuses[job.Status]++
		usage.InputTokens += job.Usage.InputTokens
		usage.OutputTokens += job.Usage.OutputTokens
		usage.CostUSD += job.Usage.CostUSD
		if !expected(job) {
			wrong++
			fmt.Printf("%s %s of %s ended as %s\n", job.ID, job.Task, job.Metadata["document"], job.Status)
		}
	}
	report, err := d.server.client.RetryReport(ctx, d.start.Add(-time.Minute), time.Now().Add(time.Minute))
	if err != nil {
		return err
	}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("jobs", "%d: %d succeeded, %d set aside", len(d.jobs), statuses[forebay.StatusSucceeded], statuses[forebay.StatusFailed])
	row("attempts", "%d", report.Attempts)
	row("retries", "%d; %d jobs needed one, %d of them succeeded", report.Retried, report.JobsRetried, report.JobsRetriedSucceeded)
	row("throttled (429)", "%d, no attempt charged", report.Throttled)
	row("lost to kill -9", "%d calls in flight, run again", report.Lost)
	row("tokens", "%d in, %d out", usage.InputTokens, usage.OutputTokens)
	row("cost", "$%.4f", usage.CostUSD.Dollars())
	row("time", "%s", took.Round(100*time.Millisecond))
	if err := table.Flush(); err != nil {
		return err
	}
	if err := d.deadLetters(ctx); err != nil {
		return err
	}
	if err := d.samples(ctx); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d jobs did not end as they should", wrong)
	}
	fmt.Printf("\nEvery job ended as it should, through %s.\n", d.survived())
	return nil
}

// survived names what was broken during the run.
func (d *demo) survived() string {
	switch {
	case d.brownedOut && d.killed:
		return "a brown-out and a kill -9"
	case d.killed:
		return "a kill -9"
	case d.brownedOut:
		return "a brown-out"
	}
	return "random faults"
}

func (d *demo) deadLetters(ctx context.Context) error {
	fmt.Println("\nDead letters")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for job, err := range d.server.client.DeadLetters(forebay.DefaultQueue).List(ctx, forebay.SetAsideFilter{}, forebay.MaxPageSize) {
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", job.Metadata["document"], job.Task, job.Reason, job.Description)
	}
	return table.Flush()
}

// samples prints one result of each task.
func (d *demo) samples(ctx context.Context) error {
	fmt.Println("\nThree results")
	for i, task := range tasks {
		for job, err := range d.server.client.List(ctx, forebay.JobFilter{CorrelationID: correlation, Task: task, Status: []forebay.Status{forebay.StatusSucceeded}}) {
			if err != nil {
				return err
			}
			if !strings.HasPrefix(job.Metadata["document"], []string{"news-", "travel-", "recipe-"}[i]) {
				continue
			}
			full, err := d.server.client.Get(ctx, job.ID)
			if err != nil {
				return err
			}
			fmt.Printf("  %s of %s: %s\n", task, job.Metadata["document"], readable(full.Result))
			break
		}
	}
	return nil
}

// readable is a result in the form a person would tell it: a summary's text, the number of
// vectors, or else its JSON.
func readable(result json.RawMessage) string {
	var known struct {
		Summary    string      `json:"summary"`
		Embeddings [][]float64 `json:"embeddings"`
	}
	switch err := json.Unmarshal(result, &known); {
	case err == nil && known.Summary != "":
		return excerpt(known.Summary)
	case err == nil && len(known.Embeddings) == 1:
		return fmt.Sprintf("1 vector of %d numbers", len(known.Embeddings[0]))
	case err == nil && len(known.Embeddings) > 1:
		return fmt.Sprintf("%d vectors of %d numbers", len(known.Embeddings), len(known.Embeddings[0]))
	}
	return excerpt(string(result))
}

// excerpt is the beginning of a text, on one line.
func excerpt(text string) string {
	const most = 240
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}
