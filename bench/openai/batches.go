package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	sdk "github.com/forebayhq/forebay/client"
)

const (
	batchAccept = "s to accept"
	batchRate   = "lines/s"
	batchPeak   = "peak resident MB"
	batchWrite  = "s to write"
)

// Batches measures a batch of OpenAI's API from its upload until its output is written.
func Batches(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Batches of OpenAI's API",
		Text: `One batch of lines of 4,000 bytes over HTTP to a server with its defaults (64 lines called at once), on SQLite; the model answers
each at once. Accepted: from the first byte of the upload until the batch is in progress, so all lines were checked. Written: from
the last answer until the output file is there. Peak: the server's highest resident memory (VmHWM).`,
		Columns: []string{batchAccept, batchRate, batchWrite, batchPeak},
	}
	few, many := b.Size(10_000, 1000), b.Size(50_000, 5000)
	name := func(lines int) string { return measure.Format(float64(lines)) + " lines" }
	err := t.TakeTurns(ctx, b.Size(1, 1),
		measure.Contender{Name: name(few), Round: func(ctx context.Context) (measure.Sample, error) { return oneBatch(ctx, b, few) }},
		measure.Contender{Name: name(many), Round: func(ctx context.Context) (measure.Sample, error) { return oneBatch(ctx, b, many) }})
	t.Expect("peak with five times the lines", t.Median(name(many), batchPeak)/t.Median(name(few), batchPeak), "<", 1.25)
	return t, err
}

// endlessLines are the lines of a batch, made as they are read.
type endlessLines struct {
	next, lines int
	rest        *strings.Reader
}

func (e *endlessLines) Read(p []byte) (int, error) {
	for {
		if n, err := e.rest.Read(p); err == nil {
			return n, nil
		}
		if e.next == e.lines {
			return 0, io.EOF
		}
		line := fmt.Sprintf(`{"custom_id":"line-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":"%s"}]}}`,
			e.next, strings.Repeat("word ", 770))
		e.rest.Reset(line + "\n")
		e.next++
	}
}

func oneBatch(ctx context.Context, b *measure.Bench, lines int) (s measure.Sample, err error) {
	f, err := serving.StartService(ctx, b, "forebay", serving.Behaviour{Whole: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	api, err := sdk.New(sdk.Options{BaseURL: f.URL})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	file, err := api.UploadBatchFile(ctx, "lines.jsonl", &endlessLines{lines: lines, rest: strings.NewReader("")})
	if err != nil {
		return nil, err
	}
	batch, err := api.CreateBatch(ctx, forebay.NewBatch{InputFile: file, Endpoint: "/v1/chat/completions", Window: "24h"})
	if err != nil {
		return nil, err
	}
	until := func(reached func(forebay.Batch) bool) (time.Duration, error) {
		for {
			now, err := api.Batch(ctx, batch.ID)
			if err != nil || reached(now) {
				return time.Since(begun), err
			}
			if now.Status.Terminal() && now.Status != forebay.BatchCompleted {
				return 0, fmt.Errorf("the batch is %s: %+v", now.Status, now.Errors)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	accepted, err := until(func(now forebay.Batch) bool { return now.Status != forebay.BatchValidating })
	if err != nil {
		return nil, err
	}
	answered, err := until(func(now forebay.Batch) bool { return now.Counts.Total > 0 && now.Counts.Completed == int64(lines) })
	if err != nil {
		return nil, err
	}
	written, err := until(func(now forebay.Batch) bool { return now.Status == forebay.BatchCompleted })
	if err != nil {
		return nil, err
	}
	return measure.Sample{
		batchAccept: accepted.Seconds(), batchRate: float64(lines) / (answered - accepted).Seconds(), batchWrite: (written - answered).Seconds(),
		batchPeak: measure.MemoryOf(f.PID, "VmHWM"),
	}, nil
}
