package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
)

// folder is blob storage whose content a test sees, and which can fail.
type folder struct {
	*blob.Store
	path  string
	out   atomic.Bool
	puts  atomic.Int32           // while it was out of order, as well
	stays atomic.Pointer[string] // a key that cannot be removed
	tries atomic.Int32           // to remove one
}

func newFolder(t *testing.T) *folder { return openFolderAt(t, t.TempDir()) }

func openFolderAt(t *testing.T, path string) *folder {
	t.Helper()
	f := &folder{path: path}
	s, err := blob.Open(t.Context(), f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f.Store = s
	return f
}

var errOut = forebay.Errorf(forebay.CodeUnavailable, "the payload storage is not available")

func (f *folder) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	f.puts.Add(1)
	if f.out.Load() {
		return errOut
	}
	return f.Store.Put(ctx, key, r, size)
}

func (f *folder) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	if f.out.Load() {
		return nil, errOut
	}
	return f.Store.ReadAll(ctx, key, limit)
}

func (f *folder) Delete(ctx context.Context, key string) error {
	f.tries.Add(1)
	if f.out.Load() {
		return errOut
	}
	if stays := f.stays.Load(); stays != nil && *stays == key {
		return errOut
	}
	return f.Store.Delete(ctx, key)
}

// keys are the keys of all blobs.
func (f *folder) keys(t *testing.T) (keys []string) {
	t.Helper()
	entries, err := os.ReadDir(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		keys = append(keys, strings.ReplaceAll(e.Name(), ".", "/"))
	}
	return keys
}

// holds waits until all blobs but freed ones are in use, and checks their number.
func (p *process) holds(t *testing.T, f *folder, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if _, err := p.RemoveFreed(t.Context(), p.store.DB.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		keys, used := f.keys(t), 0
		if err := p.store.Orchestrations.BlobsInUse(t.Context(), keys, func(string) { used++ }); err != nil {
			t.Fatal(err)
		}
		if used == len(keys) && used == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d payloads are stored, of which %d are in use; %d were to be: %q", len(keys), used, want, keys)
		}
	}
}

// large returns a JSON string of more than an inline payload.
func large(mark string) string { return mark + strings.Repeat("x", forebay.InlineBytes) }

func quoted(s string) json.RawMessage {
	encoded, _ := json.Marshal(s)
	return encoded
}

// sinceLarge is what the code of a test makes of a large value.
func sinceLarge(s string) string { return fmt.Sprint(len(s), s[:1]) }

// Payloads of all kinds go through blob storage unchanged, also to processes that do not have
// the instance in their cache. Each is deleted once nothing refers to it.
func TestLargePayloads(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(_ context.Context, in string) (any, error) { return large("r") + sinceLarge(in), nil })
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
			var in string
			err := ctx.GetInput(&in)
			return large("c") + sinceLarge(in), err
		})
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			var in, result, answer, event string
			err := errors.Join(ctx.GetInput(&in),
				activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&result),
				ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("child"), task.WithChildWorkflowInput(large("i"))).Await(&answer),
				ctx.WaitForSingleEvent("go", time.Hour).Await(&event))
			return large("o") + sinceLarge(in) + sinceLarge(result) + sinceLarge(answer) + sinceLarge(event), err
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "parent", ID: "parent", Input: quoted(large("p"))})
		p.waitsFor(t, id, "SubOrchestrationInstanceCompleted")
		// The parent has its input and two work items: one called the child after the activity,
		// one has the child's result. The child has its input, its output and one work item.
		p.holds(t, blobs, 1+3+3)
		past, err := p.History(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		p.stop()

		p = run(t, where, Options{Registry: r, Blobs: blobs}) // which knows nothing
		if err := p.Raise(t.Context(), tenant, id, "go", quoted(large("e"))); err != nil {
			t.Fatal(err)
		}
		o := p.ends(t, id, forebay.OrchestrationCompleted)
		first := fmt.Sprint(forebay.InlineBytes + 1)
		second := fmt.Sprint(forebay.InlineBytes + 1 + len(first) + 1)
		if want := large("o") + first + "p" + second + "r" + second + "c" + first + "e"; string(o.Output) != string(quoted(want)) || string(o.Input) != string(quoted(large("p"))) {
			t.Errorf("ended with %d bytes %.10s…%s and %d of input", len(o.Output), o.Output, o.Output[len(o.Output)-30:], len(o.Input))
		}
		p.holds(t, blobs, 1+4+1+3)
		again, err := p.History(t.Context(), tenant, id)
		if err != nil || len(again) <= len(past) {
			t.Fatalf("%d events, %d before: %v", len(again), len(past), err)
		}
		for i, e := range past {
			if string(e.Input) != string(again[i].Input) || string(e.Result) != string(again[i].Result) {
				t.Errorf("event %d of the history is not what it was", i)
			}
		}
		page, _, err := p.List(t.Context(), tenant, ListRequest{})
		if err != nil || len(page) != 2 || len(page[0].Input) < forebay.InlineBytes || len(page[0].Output) < forebay.InlineBytes {
			t.Errorf("listed without what is large: %v", err)
		}

		continues, err := p.Restart(t.Context(), tenant, "child", true)
		if err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, continues, forebay.OrchestrationCompleted); string(o.Output) != string(quoted(large("c")+first+"i")) {
			t.Errorf("restarted with another input: %d bytes", len(o.Output))
		}
		p.holds(t, blobs, 1+4+1+3+3)
		if err := p.Purge(t.Context(), tenant, "child"); err != nil {
			t.Fatal(err)
		}
		p.holds(t, blobs, 1+4+1+3)
		if n, err := p.PurgeMany(t.Context(), tenant, ListRequest{}); n != 2 || err != nil {
			t.Errorf("%d purged: %v", n, err)
		}
		p.holds(t, blobs, 0)
	})
}

// The blobs of an execution are deleted when its instance continues as new. Dropped and late
// results are deleted when it ends.
func TestLargePayloadsOfOneExecution(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(context.Context, string) (any, error) { return large("r"), nil })
		held := make(chan struct{}, 100)
		add(t, r, "hold", func(ctx context.Context, _ string) (any, error) {
			held <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		addOrchestrator(t, r, "again", func(ctx *task.WorkflowContext) (any, error) {
			var in, result string
			if err := errors.Join(ctx.GetInput(&in), activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&result)); err != nil {
				return nil, err
			}
			if len(in) < forebay.InlineBytes+5 {
				ctx.ContinueAsNew(in + "y")
				return nil, nil
			}
			return nil, activity(ctx, "hold", large("h"), forebay.RetryPolicy{}).Await(nil)
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs, Lock: time.Second})
		id := p.start(t, StartRequest{Name: "again", Input: quoted(large("p"))})
		<-held
		// Its input, the work items that called grow and then hold, and the input of hold.
		p.holds(t, blobs, 1+2+1)
		if err := p.Terminate(t.Context(), tenant, id, "enough"); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationTerminated)
		p.holds(t, blobs, 1+2)
		if err := p.Raise(t.Context(), tenant, id, "late", quoted(large("e"))); forebay.CodeOf(err) != forebay.CodeGone {
			t.Errorf("%v", err)
		}
		p.holds(t, blobs, 1+2)
	})
}

// Payloads that an instance never saw are deleted at its end, also those that arrive during its
// last work item.
func TestLargePayloadsThatAreNotSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(context.Context, string) (any, error) { return large("r"), nil })
		addOrchestrator(t, r, "hasty", func(ctx *task.WorkflowContext) (any, error) {
			activity(ctx, "grow", large("a"), forebay.RetryPolicy{})
			return nil, nil
		})
		amid, sent := make(chan struct{}, 100), make(chan struct{})
		addOrchestrator(t, r, "slow", func(ctx *task.WorkflowContext) (any, error) {
			amid <- struct{}{}
			<-sent
			return nil, nil
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		p.ends(t, p.start(t, StartRequest{Name: "hasty"}), forebay.OrchestrationCompleted)
		p.holds(t, blobs, 1) // what it had asked for, in its history
		id := p.start(t, StartRequest{Name: "slow"})
		<-amid
		if err := p.Raise(t.Context(), tenant, id, "late", quoted(large("e"))); err != nil {
			t.Fatal(err)
		}
		close(sent)
		p.ends(t, id, forebay.OrchestrationCompleted)
		p.holds(t, blobs, 1)
	})
}

// A rewind and a restart keep the large payloads, and leave none unused.
func TestLargePayloadsOfASecondTry(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		var broken atomic.Bool
		add(t, r, "grow", func(_ context.Context, in string) (any, error) {
			if in[0] == 'b' && broken.Load() {
				return nil, errors.New("it is broken")
			}
			return large("r") + sinceLarge(in), nil
		})
		addOrchestrator(t, r, "two", func(ctx *task.WorkflowContext) (any, error) {
			var in, first, second string
			err := errors.Join(ctx.GetInput(&in), activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&first))
			if err := activity(ctx, "grow", large("b"), forebay.RetryPolicy{}).Await(&second); err != nil {
				return nil, err
			}
			return sinceLarge(in) + sinceLarge(first) + sinceLarge(second), err
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		broken.Store(true)
		id := p.start(t, StartRequest{Name: "two", Input: quoted(large("p"))})
		p.ends(t, id, forebay.OrchestrationFailed)
		p.holds(t, blobs, 1+2)
		broken.Store(false)
		want := string(quoted("65537p65543r65543r"))
		for _, again := range []func() error{
			func() error { return p.Rewind(t.Context(), tenant, id, "it is mended") },
			func() error {
				_, err := p.Restart(t.Context(), tenant, id, false)
				return err
			},
		} {
			if err := again(); err != nil {
				t.Fatal(err)
			}
			if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != want {
				t.Errorf("%s", o.Output)
			}
		}
		p.holds(t, blobs, 1+3)
	})
}

// A rewound instance that continues as new leaves no payload of its old execution.
func TestLargePayloadsContinuedAfterARewind(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r, blobs := breakable(t, &works, &good, &bad), newFolder(t)
		addOrchestrator(t, r, "again", func(ctx *task.WorkflowContext) (any, error) {
			var in string
			if err := ctx.GetInput(&in); err != nil || in == "small" {
				return in, err
			}
			err := activity(ctx, "bad", nil, forebay.RetryPolicy{}).Await(nil)
			if err == nil {
				ctx.ContinueAsNew("small")
			}
			return nil, err
		})
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		id := p.start(t, StartRequest{Name: "again", Input: quoted(large("p"))})
		p.ends(t, id, forebay.OrchestrationFailed)
		works.Store(1)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"small"` {
			t.Errorf("%s", o.Output)
		}
		p.holds(t, blobs, 0)
	})
}
