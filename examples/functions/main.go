// Command functions embeds Forebay in a program and adds a Go function as a task. The function is
// retried, rate-limited and recorded like any model call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "functions:", err)
		os.Exit(1)
	}
}

// run submits two jobs to a server of its own and prints what became of them.
func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "forebay-functions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var calls atomic.Int64
	wordCount := forebay.Task{
		Name:        "count-words",
		Description: "counts the words of a text",
		Check: func(input json.RawMessage) error {
			var text string
			if err := json.Unmarshal(input, &text); err != nil {
				return forebay.Invalid("input", "must be a string")
			}
			return nil
		},
		Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if calls.Add(1) == 1 {
				return forebay.TaskResult{}, fmt.Errorf("the first call always fails") // so it is retried
			}
			var text string
			if err := json.Unmarshal(call.Input, &text); err != nil {
				return forebay.TaskResult{}, forebay.Permanent("invalid_input", "not a string")
			}
			output, err := json.Marshal(map[string]int{"words": len(strings.Fields(text))})
			return forebay.TaskResult{Output: output, Deployment: "count-words"}, err
		},
	}
	s, err := server.New(server.Options{
		Database:  "sqlite:" + filepath.Join(dir, "forebay.db"),
		Functions: []forebay.Task{wordCount},
		Role:      server.RoleWorker, // no HTTP: the program submits by itself
		Log:       server.Log{Level: "error"},
		Queues: map[string]server.Queue{forebay.DefaultQueue: {
			Retry: server.Retry{Policy: "fixed", First: 100 * time.Millisecond},
		}},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()

	err = submitTwo(ctx, s)
	stop()
	if stopErr := <-stopped; err == nil {
		err = stopErr
	}
	return err
}

func submitTwo(ctx context.Context, s *server.Server) error {
	job, err := s.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "count-words", Input: json.RawMessage(`"water finds its own level"`)})
	if err != nil {
		return err
	}
	if job, err = s.Wait(ctx, forebay.DefaultTenant, job.ID, time.Minute); err != nil {
		return err
	}
	fmt.Println(job.Status, string(job.Result), "after", job.Attempt, "attempts")

	_, err = s.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "count-words", Input: json.RawMessage(`42`)})
	fmt.Println("a number is refused:", err)
	return nil
}
