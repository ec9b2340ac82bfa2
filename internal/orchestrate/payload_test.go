package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/store"
)

// folder is blob storage of which a test sees what is in it, and which can be out of order.
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

// keys are those of all that is stored.
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

// holds returns once all that is stored, but for what is freed, is in use, and is so many payloads.
func (p *process) holds(t *testing.T, f *folder, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if _, err := p.RemoveFreed(t.Context(), p.store.DB.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		keys, used := f.keys(t), 0
		if err := p.store.BlobsInUse(t.Context(), nil, keys, func(string) { used++ }); err != nil {
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

// sinceLarge is what a test's code makes of a large value.
func sinceLarge(s string) string { return fmt.Sprint(len(s), s[:1]) }

// Payloads of all kinds go by blob storage and come back as they were, to processes that know nothing of the instance yet as well; each is removed
// once nothing refers to it any more.
func TestLargePayloads(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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
		// The parent's input and its turns so far: it called the activity, heard of it and called the child, heard of that. The child's input, output and
		// only turn.
		p.holds(t, blobs, 1+3+3)
		history, err := p.History(t.Context(), tenant, id)
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
		if err != nil || len(again) <= len(history) {
			t.Fatalf("%d events, %d before: %v", len(again), len(history), err)
		}
		for i, e := range history {
			if string(e.Input) != string(again[i].Input) || string(e.Result) != string(again[i].Result) {
				t.Errorf("event %d of the history is not what it was", i)
			}
		}
		page, _, err := p.List(t.Context(), tenant, ListRequest{})
		if err != nil || len(page) != 2 || len(page[0].Input) < forebay.InlineBytes || len(page[0].Output) < forebay.InlineBytes {
			t.Errorf("listed without what is large: %v", err)
		}

		anew, err := p.Restart(t.Context(), tenant, "child", true)
		if err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, anew, forebay.OrchestrationCompleted); string(o.Output) != string(quoted(large("c")+first+"i")) {
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

// What an execution had in blob storage goes when its instance continues as new, and what is cut off or comes too late when it ends.
func TestLargePayloadsOfOneExecution(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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
		// Its input, the turns in which it called grow and then hold, and the input of that.
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

// Of what an instance lets go unheard when it ends nothing is kept, nor what arrives in the middle of its last turn.
func TestLargePayloadsThatAreNotSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// A rewind and a restart have all that is large, and leave none of what was.
func TestLargePayloadsOfASecondTry(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// breaksAtAResult returns blob storage that is out of order once the activity of the orchestrator "parent" is called for the first time, and
// how often that was called.
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

// While blob storage cannot be used nothing is lost: clients are told, the result of an activity is stored once it can be again, without another
// call, and no attempt and no turn counts as lost.
func TestBlobStorageOutOfOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// Who does not ask for payloads by gRPC does not wait for them.
func TestGetInstanceWithoutPayloads(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r, Blobs: blobs})
		_, client, _ := worker(t, p.serve(t))
		id := p.start(t, StartRequest{Name: "waiting", Input: quoted(large("p"))})
		p.until(t, id, forebay.OrchestrationRunning)
		blobs.out.Store(true)
		get := &protos.GetInstanceRequest{InstanceId: id}
		if _, err := client.TerminateInstance(t.Context(), &protos.TerminateRequest{InstanceId: id}); err != nil {
			t.Error(err)
		}
		for name, read := range map[string]func(context.Context, *protos.GetInstanceRequest, ...grpc.CallOption) (*protos.GetInstanceResponse, error){
			"GetInstance": client.GetInstance, "WaitForInstanceStart": client.WaitForInstanceStart, "WaitForInstanceCompletion": client.WaitForInstanceCompletion,
		} {
			get.GetInputsAndOutputs = false
			if resp, err := read(t.Context(), get); err != nil || resp.GetWorkflowState().GetInput() != nil {
				t.Errorf("%s: %v", name, err)
			}
			get.GetInputsAndOutputs = true
			if _, err := read(t.Context(), get); status.Code(err) != codes.Unavailable {
				t.Errorf("%s with payloads that cannot be read: %v", name, err)
			}
		}
	})
}

// A process that stops while the result of an activity cannot be stored does not wait for that: the activity is called again by another.
func TestBlobStorageOutOfOrderAtAResult(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// An instance that was rewound leaves none of what was large in the execution that it goes on from.
func TestLargePayloadsContinuedAfterARewind(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// What cannot be removed keeps nothing else from being removed.
func TestFreedBlobsThatStay(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// While blob storage cannot be used not all is tried to be removed, however much there is.
func TestFreedBlobsOfAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// A turn, and whoever asks, do not wait long for storage that never answers.
func TestSilentBlobStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Blobs: silent{}})
		s.running = t.Context()
		turn, result := &store.Turn{Token: 1}, &store.TurnResult{Output: store.Inline([]byte(large("o"))), Status: forebay.OrchestrationCompleted}
		s.hold(turn.Token, &held{turn: turn})
		for name, call := range map[string]func() error{
			"a turn": func() error {
				_, err := s.keepTurn(t.Context(), turn, result)
				return err
			},
			"a reader": func() error {
				_, err := s.load(t.Context(), store.Payload{Blob: "t/1/orchestrations/x/70000"})
				return err
			},
		} {
			begun := time.Now()
			if err := call(); !passing(err) {
				t.Errorf("%s: %v", name, err)
			}
			if waited := time.Since(begun); waited > 20*time.Second {
				t.Errorf("%s waited %v", name, waited)
			}
		}
	})
}

// neverRemoves is blob storage that does not answer who removes something.
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

// However much is to be removed from storage that never answers, whoever removes it goes on to other things soon.
func TestFreedBlobsOfSilentStorage(t *testing.T) {
	r := NewRegistry()
	addOrchestrator(t, r, "done", func(*task.WorkflowContext) (any, error) { return nil, nil })
	inBubble(t, func(t *testing.T, p *process) {
		for range 10 * atOnce {
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

// What is being read from blob storage when a process stops is given back before it ends.
func TestStopWhileAnActivityIsRead(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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

// slowToGiveUp reads nothing, and takes a while to notice that nobody waits for it.
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

// A process that stops while blob storage cannot be used gives the work back, for others to do once it can be.
func TestBlobStorageOutOfOrderUntilTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
		r, blobs := NewRegistry(), newFolder(t)
		add(t, r, "grow", func(context.Context, string) (any, error) { return large("r"), nil })
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			var in, result string
			err := errors.Join(ctx.GetInput(&in), activity(ctx, "grow", large("a"), forebay.RetryPolicy{}).Await(&result))
			return sinceLarge(in) + sinceLarge(result), err
		})
		out := newFolder(t)
		out.Store, out.path = blobs.Store, blobs.path
		starter, err := store.Open(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		id, err := New(Options{Store: starter, Registry: r, Blobs: blobs}).Start(t.Context(), tenant, StartRequest{Name: "parent", Input: quoted(large("p"))})
		if err := errors.Join(err, starter.DB.Close()); err != nil {
			t.Fatal(err)
		}
		out.out.Store(true)
		abandoned := make(chan struct{}, 1000)
		p := run(t, where, Options{Registry: r, Blobs: out, Observe: func(taken Taken) {
			if taken.Outcome == TurnAbandoned {
				abandoned <- struct{}{}
			}
		}})
		<-abandoned
		<-abandoned
		p.stop()
		s, err := store.Open(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		if turn := claimOne(t, s, "parent", time.Millisecond); turn.Lost != 0 {
			t.Errorf("lost %d times", turn.Lost)
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

// An instance whose history is gone from blob storage is told to have failed in the end, rather than tried for ever.
func TestBlobsAreGone(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
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
		s, err := store.Open(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		if err := New(Options{Store: s}).Raise(t.Context(), tenant, id, "go", json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		abandoned := make(chan struct{}, 100)
		p = run(t, where, Options{Registry: r, Blobs: blobs, Observe: func(Taken) { abandoned <- struct{}{} }})
		<-abandoned
		<-abandoned
		p.stop()
		if s, err = store.Open(t.Context(), where); err != nil {
			t.Fatal(err)
		}
		first := claimOne(t, s, "waiting", time.Millisecond).Lost // and nobody hears of it again
		if first < 2 {
			t.Fatalf("lost %d times, though it came to nothing twice", first)
		}
		for n := first + 1; n < maxLost; n++ {
			if turn := claimOne(t, s, "waiting", time.Millisecond); turn.Lost != n {
				t.Fatalf("lost %d times, not %d", turn.Lost, n)
			}
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		p = run(t, where, Options{Registry: r, Blobs: blobs})
		p.sees(t, id, "its end", func(row store.OrchestrationRow) bool { return row.Status == forebay.OrchestrationFailed })
		if _, err := p.Get(t.Context(), tenant, id); !errors.Is(err, errHistory) {
			t.Errorf("its input is missing: %v", err)
		}
		if page, _, err := p.List(t.Context(), tenant, ListRequest{}); err != nil || len(page) != 1 || page[0].Failure.Type != failureTurnLost {
			t.Errorf("listed: %+v, %v", page, err)
		}
		if err := p.Purge(t.Context(), tenant, id); err != nil {
			t.Error(err)
		}
	})
}
