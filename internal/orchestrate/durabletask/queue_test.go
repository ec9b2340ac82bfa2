package durabletask

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// What was queued for workers that have gone is not kept in memory: a worker may never connect to
// this process again.
func TestQueuedItemsGoWithTheWorkers(t *testing.T) {
	t.Parallel()
	p := run(t, db.Options{Path: dbtest.SQLite(t)}, orchestrate.Options{})
	h := p.server.taskHub(1, tenant)
	mustDo(t, h.workerConnected(t.Context(), h.current()))
	input := wrapperspb.String(strings.Repeat("x", 1<<20))
	kept := weak.Make(input)
	event := &protos.HistoryEvent{EventType: &protos.HistoryEvent_TaskScheduled{TaskScheduled: &protos.TaskScheduledEvent{Name: "a", Input: input}}}
	ended := make(chan error, 1)
	go func(event *protos.HistoryEvent) {
		_, err := p.server.ExecuteActivity(context.Background(), 1, "i", event)
		ended <- err
	}(event)
	until(t, "the activity is queued", func() (queued bool) {
		h.open.Range(func(any, any) bool { queued = true; return false })
		return queued
	})
	former := h.current()
	mustDo(t, h.workerLeft(t.Context()))
	h.giveBackRemote()
	if err := <-ended; !errors.Is(err, orchestrate.ErrNoWorker) {
		t.Errorf("the activity ended with %v", err)
	}
	if err := h.workerConnected(t.Context(), former); !errors.Is(err, errReconnect) {
		t.Errorf("a worker that connects to the former queue: %v", err)
	}
	mustDo(t, h.workerLeft(t.Context()))
	mustDo(t, h.workerConnected(t.Context(), h.current()))
	until(t, "the input is no longer in memory", func() bool {
		runtime.GC()
		return kept.Value() == nil
	})
	mustDo(t, h.workerLeft(t.Context()))
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
