package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// breaksAtAResult returns blob storage that fails once the activity of the orchestrator "parent"
// is first called, and the number of calls.
func breaksAtAResult(t *testing.T) (r *Registry, blobs *folder, calls *atomic.Int32) {
	r, blobs, calls = NewRegistry(), newFolder(t), &atomic.Int32{}
	add(t, r, "grow", func(context.Context, string) (any, error) {
		if calls.Add(1) == 1 {
			blobs.puts.Store(0)
			blobs.out.Store(true)
		}
		return large("r"), nil
	})
	addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
		var result string
		err := activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&result)
		return sinceLarge(result), err
	})
	return r, blobs, calls
}

// An outage of blob storage loses nothing. Clients get an error. An activity's result is stored
// after the outage, without another call, and no work item counts as lost.
func TestBlobStorageOutOfOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs, calls := breaksAtAResult(t)
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "parent"})
		until(t, "the result is tried to be stored", func() bool { return blobs.out.Load() && blobs.puts.Load() >= 3 })
		if _, err := p.Start(t.Context(), tenant, StartRequest{Name: "parent", Input: quoted(large("p"))}); forebay.CodeOf(err) != forebay.CodeUnavailable {
			t.Errorf("started: %v", err)
		}
		if _, err := p.History(t.Context(), tenant, id); forebay.CodeOf(err) != forebay.CodeUnavailable {
			t.Errorf("a history read: %v", err)
		}
		blobs.out.Store(false)
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"65537r"` {
			t.Errorf("%+v", o)
		}
		attempts, err := p.Attempts(t.Context(), tenant, id)
		if err != nil || len(attempts) != 1 || calls.Load() != 1 {
			t.Errorf("%d calls, %+v: %v", calls.Load(), attempts, err)
		}
		p.holds(t, blobs, 2)
	})
}

// A process that stops while a result cannot be stored does not wait. Another process calls the
// activity again.
func TestBlobStorageOutOfOrderAtAResult(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs, calls := breaksAtAResult(t)
		p := run(t, where, Options{Registry: r, Blobs: blobs, Grace: time.Millisecond})
		id := p.start(t, StartRequest{Name: "parent"})
		until(t, "the result is tried to be stored", func() bool { return blobs.out.Load() && blobs.puts.Load() >= 2 })
		p.stop()
		blobs.out.Store(false)
		p = run(t, where, Options{Registry: r, Blobs: blobs})
		p.ends(t, id, forebay.OrchestrationCompleted)
		attempts, err := p.Attempts(t.Context(), tenant, id)
		if err != nil || len(attempts) != 1 || calls.Load() != 2 {
			t.Errorf("%d calls, %+v: %v", calls.Load(), attempts, err)
		}
	})
}

// A blob that cannot be deleted does not keep others from being deleted.
func TestFreedBlobsThatStay(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "waiting", Input: quoted(large("p"))})
		p.until(t, id, forebay.OrchestrationRunning)
		p.holds(t, blobs, 2)
		if err := p.Terminate(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationTerminated)
		if err := p.Purge(t.Context(), tenant, id); err != nil {
			t.Fatal(err)
		}
		keys := blobs.keys(t)
		blobs.stays.Store(&keys[0])
		later := p.store.DB.Now().Add(time.Hour)
		if n, err := p.RemoveFreed(t.Context(), later); n != len(keys)-1 || forebay.CodeOf(err) != forebay.CodeUnavailable {
			t.Errorf("%d of %d removed: %v", n, len(keys), err)
		}
		blobs.stays.Store(nil)
		if n, err := p.RemoveFreed(t.Context(), later); n != 1 || err != nil {
			t.Errorf("%d removed: %v", n, err)
		}
	})
}

// During an outage of blob storage only some deletions are tried, however many there are.
func TestFreedBlobsOfAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(context.Context, string) (any, error) { return nil, nil })
		addOrchestrator(t, r, "many", func(ctx *task.WorkflowContext) (any, error) {
			for range 10 {
				if err := activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(nil); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "many"})
		p.ends(t, id, forebay.OrchestrationCompleted)
		if err := p.Purge(t.Context(), tenant, id); err != nil {
			t.Fatal(err)
		}
		const page = 4
		later, all := p.store.DB.Now().Add(time.Hour), len(blobs.keys(t))
		blobs.out.Store(true)
		if n, err := p.removeFreed(t.Context(), later, page); n != 0 || forebay.CodeOf(err) != forebay.CodeUnavailable || blobs.tries.Load() != page {
			t.Errorf("%d removed in %d tries: %v", n, blobs.tries.Load(), err)
		}
		blobs.out.Store(false)
		if n, err := p.removeFreed(t.Context(), later, page); n != all || all <= page || err != nil {
			t.Errorf("%d of %d removed: %v", n, all, err)
		}
	})
}

// silent is blob storage that takes calls and never answers them.
type silent struct{}

func (silent) Put(ctx context.Context, _ string, _ io.Reader, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silent) ReadAll(ctx context.Context, _ string, _ int64) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Delete(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A work item, and a reader, do not wait long for storage that never answers.
func TestSilentBlobStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Blobs: silent{}})
		s.running = t.Context()
		item, result := &OrchestrationItem{Token: 1}, &OrchestrationResult{Output: Inline([]byte(large("o"))), Status: forebay.OrchestrationCompleted}
		s.hold(item.Token, &heldItem{orchestration: item})
		for name, call := range map[string]func() error{
			"a turn": func() error {
				_, err := s.taskHub(1).storeResultPayloads(t.Context(), item, result)
				return err
			},
			"a reader": func() error {
				_, err := s.load(t.Context(), Payload{Blob: "t/1/orchestrations/x/70000"})
				return err
			},
		} {
			begun := time.Now()
			if err := call(); !mayPass(err) {
				t.Errorf("%s: %v", name, err)
			}
			if waited := time.Since(begun); waited > 20*time.Second {
				t.Errorf("%s waited %v", name, waited)
			}
		}
	})
}

// neverRemoves is blob storage whose deletions never return.
type neverRemoves struct {
	silent
	held sync.Map // key → content
}

func (n *neverRemoves) Put(_ context.Context, key string, r io.Reader, _ int64) error {
	b, err := io.ReadAll(r)
	n.held.Store(key, b)
	return err
}

func (n *neverRemoves) ReadAll(_ context.Context, key string, _ int64) ([]byte, error) {
	b, _ := n.held.Load(key)
	return b.([]byte), nil
}

// Deletions from storage that never answers return soon, however many there are.
func TestFreedBlobsOfSilentStorage(t *testing.T) {
	r := NewRegistry()
	addOrchestrator(t, r, "done", func(*task.WorkflowContext) (any, error) { return nil, nil })
	inBubble(t, func(t *testing.T, p *process) {
		for range 10 * maxConcurrent {
			id := p.start(t, StartRequest{Name: "done", Input: quoted(large("p"))})
			p.ends(t, id, forebay.OrchestrationCompleted)
			if err := p.Purge(t.Context(), tenant, id); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		n, err := p.RemoveFreed(t.Context(), p.store.DB.Now().Add(time.Hour))
		if took := time.Since(begun); n != 0 || !errors.Is(err, context.DeadlineExceeded) || took < blobTime || took > 3*blobTime {
			t.Errorf("%d removed in %v: %v", n, took, err)
		}
	})(r, Options{Blobs: &neverRemoves{}})
}

// An activity that is read from blob storage when a process stops is given back before the
// process ends.
func TestStopWhileAnActivityIsRead(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		var calls atomic.Int32
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(nil)
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "parent"})
		p.waitsFor(t, id, "TaskScheduled")
		p.stop()
		add(t, r, "grow", func(context.Context, string) (any, error) { calls.Add(1); return nil, nil })
		slow := &slowToGiveUp{Blobs: blobs, reads: make(chan struct{}, 1)}
		p = run(t, where, Options{Registry: r, Blobs: slow, Grace: time.Millisecond, Lock: time.Hour})
		<-slow.reads
		p.stop()
		p = run(t, where, Options{Registry: r, Blobs: blobs})
		p.ends(t, id, forebay.OrchestrationCompleted)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

// slowToGiveUp reads nothing, and returns a while after its context has ended.
type slowToGiveUp struct {
	Blobs
	reads chan struct{}
}

func (s *slowToGiveUp) ReadAll(ctx context.Context, _ string, _ int64) ([]byte, error) {
	s.reads <- struct{}{}
	<-ctx.Done()
	<-time.After(200 * time.Millisecond)
	return nil, ctx.Err()
}

// A process that stops during an outage of blob storage gives its work items back. Others
// execute them after the outage.
func TestBlobStorageOutOfOrderUntilTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(context.Context, string) (any, error) { return large("r"), nil })
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			var in, result string
			err := errors.Join(ctx.GetInput(&in), activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&result))
			return sinceLarge(in) + sinceLarge(result), err
		})
		out := newFolder(t)
		out.Store, out.path = blobs.Store, blobs.path
		starter, err := openStores(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		id, err := New(Options{Store: starter.Orchestrations, Registry: r, Blobs: blobs}).Start(t.Context(), tenant, StartRequest{Name: "parent", Input: quoted(large("p"))})
		if err := errors.Join(err, starter.DB.Close()); err != nil {
			t.Fatal(err)
		}
		out.out.Store(true)
		abandoned := make(chan struct{}, 1000)
		p := run(t, where, Options{Registry: r, Blobs: out, Observe: func(taken ProcessedItem) {
			if taken.Outcome == ItemAbandoned {
				abandoned <- struct{}{}
			}
		}})
		<-abandoned
		<-abandoned
		p.stop()
		s, err := openStores(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		if item := claimOne(t, s, "parent", time.Millisecond); item.LostDeliveries != 0 {
			t.Errorf("lost %d times", item.LostDeliveries)
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		p = run(t, where, Options{Registry: r, Blobs: blobs})
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"65537p65537r"` {
			t.Errorf("%+v", o)
		}
	})
}

// An instance whose history is missing in blob storage fails in the end, rather than being
// retried for ever.
func TestBlobsAreGone(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "waiting", Input: quoted(large("p"))})
		p.until(t, id, forebay.OrchestrationRunning)
		p.holds(t, blobs, 2)
		p.stop()
		for _, key := range blobs.keys(t) {
			if err := os.Remove(filepath.Join(blobs.path, strings.ReplaceAll(key, "/", "."))); err != nil {
				t.Fatal(err)
			}
		}
		s, err := openStores(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		if err := New(Options{Store: s.Orchestrations}).Raise(t.Context(), tenant, id, "go", json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		abandoned := make(chan struct{}, 100)
		p = run(t, where, Options{Registry: r, Blobs: blobs, Observe: func(ProcessedItem) { abandoned <- struct{}{} }})
		<-abandoned
		<-abandoned
		p.stop()
		if s, err = openStores(t.Context(), where); err != nil {
			t.Fatal(err)
		}
		first := claimOne(t, s, "waiting", time.Millisecond).LostDeliveries // and nobody hears of it again
		if first < 2 {
			t.Fatalf("lost %d times, though it came to nothing twice", first)
		}
		for n := first + 1; n < maxLostDeliveries; n++ {
			if item := claimOne(t, s, "waiting", time.Millisecond); item.LostDeliveries != n {
				t.Fatalf("lost %d times, not %d", item.LostDeliveries, n)
			}
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		p = run(t, where, Options{Registry: r, Blobs: blobs})
		p.sees(t, id, "its end", func(row OrchestrationRow) bool { return row.Status == forebay.OrchestrationFailed })
		if _, err := p.Get(t.Context(), tenant, id); !errors.Is(err, history.ErrUnreadable) {
			t.Errorf("its input is missing: %v", err)
		}
		if page, _, err := p.List(t.Context(), tenant, ListRequest{}); err != nil || len(page) != 1 || page[0].Failure.Type != failurePoison {
			t.Errorf("listed: %+v, %v", page, err)
		}
		if err := p.Purge(t.Context(), tenant, id); err != nil {
			t.Error(err)
		}
	})
}
