package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

const waitingBytes = 128 // of input of a job that only waits

// backlog measures the rate while many other jobs wait.
func backlog(ctx context.Context, b *bench) (t table, err error) {
	t = table{
		title: "Rate with other jobs waiting",
		text: fmt.Sprintf(`The first measurement (1 KiB, 64 producers, 64 consumers, in process) on databases in which other jobs wait, each with %d
bytes of input: scheduled for tomorrow in the same queue, or ready in another queue whose one worker is busy.`, waitingBytes),
		columns: []string{jobRate, "enqueue p50 ms", "enqueue p99 ms", "share of the empty rate", "disk flushes/job"},
	}
	amounts := []int{100_000, 1_000_000}
	if b.quick {
		amounts = amounts[:1]
	}
	var contenders []contender
	var open []*embedded
	defer func() {
		for _, e := range open {
			err = errors.Join(err, e.stop())
		}
	}()
	add := func(name string, waiting int, req forebay.SubmitRequest) error {
		begun := time.Now()
		e, err := startWithBacklog(ctx, b, waiting, req)
		if err != nil {
			return err
		}
		if waiting > 0 {
			fmt.Fprintf(os.Stderr, "  %s: filled in %.0f s\n", name, time.Since(begun).Seconds())
		}
		open = append(open, e)
		contenders = append(contenders, contender{name, func(ctx context.Context) (sample, error) { return e.live(ctx, b.size(20_000, 10_000)) }})
		return nil
	}
	const empty = "none"
	if err := add(empty, 0, forebay.SubmitRequest{}); err != nil {
		return t, err
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	for _, waiting := range amounts {
		if err := add(fmt.Sprintf("%s scheduled for later", format(float64(waiting))), waiting, forebay.SubmitRequest{ScheduledAt: &tomorrow}); err != nil {
			return t, err
		}
		if err := add(fmt.Sprintf("%s in another queue", format(float64(waiting))), waiting, forebay.SubmitRequest{Queue: otherQueue}); err != nil {
			return t, err
		}
	}
	if err := t.takeTurns(ctx, min(3, b.rounds), contenders...); err != nil {
		return t, err
	}
	base := t.median(empty, jobRate)
	for _, r := range t.rows {
		for _, s := range r.samples {
			s["share of the empty rate"] = s[jobRate] / base
		}
	}
	return t, nil
}

const otherQueue = "other"

// startWithBacklog starts a server and gives it jobs like req that wait.
func startWithBacklog(ctx context.Context, b *bench, waiting int, req forebay.SubmitRequest) (*embedded, error) {
	hold := forebay.Task{Name: "hold", Run: func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
		<-ctx.Done() // keeps the queue's one worker busy
		return forebay.TaskResult{}, ctx.Err()
	}}
	e, err := startEmbedded(b, map[string]server.Queue{otherQueue: {Concurrency: 1}}, hold)
	if err != nil {
		return nil, err
	}
	req.Task, req.Input = "hold", quoted(waitingBytes)
	const submitters = 512 // more of them share a commit
	err = inParallel(submitters, waiting, func(int) error {
		_, err := e.Submit(ctx, forebay.DefaultTenant, req)
		return err
	})
	return e, err
}
