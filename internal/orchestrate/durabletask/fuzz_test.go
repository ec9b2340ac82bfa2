package durabletask

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/stores"
)

// composer makes messages from bytes: each byte decides something.
type composer struct {
	bytes []byte
	words []string // what a text may be besides
}

// next returns the next byte, 0 after the last.
func (c *composer) next() byte {
	if len(c.bytes) == 0 {
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return b
}

func (c *composer) number() int64 {
	switch b := c.next(); {
	case b < 200:
		return int64(b) - 4
	case b < 230:
		return int64(b) << c.next()
	}
	var eight [8]byte
	c.bytes = c.bytes[copy(eight[:], c.bytes):]
	return int64(binary.BigEndian.Uint64(eight[:]))
}

func (c *composer) text() string {
	b := c.next()
	if n := int(b) - 100; n >= 0 {
		if n < len(c.words) {
			return c.words[n]
		}
		return strings.Repeat(string(rune('a'+n%26)), n*n)
	}
	n := min(int(b)%16, len(c.bytes))
	s := string(c.bytes[:n])
	c.bytes = c.bytes[n:]
	return strings.ToValidUTF8(s, "?")
}

// fill sets fields of a message. A byte of 0 ends it, so fields stay empty once the bytes are
// used up.
func (c *composer) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for range 64 {
		b := c.next()
		if b == 0 || fields.Len() == 0 {
			return
		}
		field := fields.Get(int(b-1) % fields.Len())
		switch {
		case field.IsMap():
			for range c.next() % 4 {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(c.text()).MapKey(), c.scalar(field.MapValue()))
			}
		case field.IsList() && field.Message() != nil:
			for range c.next() % 8 {
				c.fillIfShallow(m.Mutable(field).List().AppendMutable().Message(), depth)
			}
		case field.IsList():
			for range c.next() % 8 {
				m.Mutable(field).List().Append(c.scalar(field))
			}
		case field.Message() != nil:
			c.fillIfShallow(m.Mutable(field).Message(), depth)
		default:
			m.Set(field, c.scalar(field))
		}
	}
}

func (c *composer) fillIfShallow(m protoreflect.Message, depth int) {
	if depth > 0 {
		c.fill(m, depth-1)
	}
}

func (c *composer) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.next()%2 == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(c.number()))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(c.number()))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(c.number()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(c.number())
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(c.number()))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(c.number()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(c.number()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(c.text()))
	}
	return protoreflect.ValueOfString(c.text())
}

// fuzzed is the orchestrator whose responses the fuzzer makes.
const fuzzed = "fuzzed"

// endpointUnderFuzz is a server with a worker that is connected, and a client.
type endpointUnderFuzz struct {
	*process
	conn   *grpc.ClientConn
	client protos.TaskHubSidecarServiceClient
	over   chan orchestrate.ProcessedItem // of the orchestrator fuzzed

	mu      sync.Mutex
	answers map[string]func(*protos.WorkItem) proto.Message // by instance: the response to its next work item
}

func startFuzz(f *testing.F) *endpointUnderFuzz {
	f.Helper()
	e := &endpointUnderFuzz{over: make(chan orchestrate.ProcessedItem, 1000), answers: map[string]func(*protos.WorkItem) proto.Message{}}
	s, err := stores.Open(f.Context(), db.Options{Path: filepath.Join(f.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		f.Fatal(err)
	}
	e.process = &process{Service: orchestrate.New(orchestrate.Options{Store: s.Orchestrations, Remote: true, Observe: func(t orchestrate.ProcessedItem) {
		if t.Kind == workqueues.Orchestrations && t.Name == fuzzed {
			e.over <- t
		}
	}}), store: s}
	e.server = New(Options{Service: e.Service})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	address := serveAt(ctx, f, &running, e.server, ServeOptions{Authenticate: anybody})
	e.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	e.client = protos.NewTaskHubSidecarServiceClient(e.conn)
	stream, err := e.client.GetWorkItems(ctx, &protos.GetWorkItemsRequest{})
	if err != nil {
		f.Fatal(err)
	}
	running.Go(func() { e.answerItems(ctx, stream) })
	f.Cleanup(func() {
		cancel()
		running.Wait()
		if err := errors.Join(e.conn.Close(), s.DB.Close()); err != nil {
			f.Error(err)
		}
	})
	return e
}

// answerItems answers work items: with what the fuzzer has made, or else so that the instance
// ends.
func (e *endpointUnderFuzz) answerItems(ctx context.Context, stream grpc.ServerStreamingClient[protos.WorkItem]) {
	for {
		item, err := stream.Recv()
		if err != nil {
			return
		}
		if req := item.GetActivityRequest(); req != nil {
			_, _ = e.client.CompleteActivityTask(ctx, &protos.ActivityResponse{ // if it fails the activity is lost, and fails in the end
				InstanceId: req.GetWorkflowInstance().GetInstanceId(), TaskId: req.GetTaskId(), CompletionToken: item.GetCompletionToken()})
			continue
		}
		id := item.GetWorkflowRequest().GetInstanceId()
		e.mu.Lock()
		answer := e.answers[id]
		delete(e.answers, id)
		e.mu.Unlock()
		if answer == nil {
			answer = func(*protos.WorkItem) proto.Message {
				return &protos.WorkflowResponse{Actions: []*protos.WorkflowAction{end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED)}}
			}
		}
		resp := answer(item).(*protos.WorkflowResponse)
		resp.InstanceId, resp.CompletionToken = id, item.GetCompletionToken()
		if _, err := e.client.CompleteWorkflowTask(ctx, resp); status.Code(err) == codes.Unimplemented || status.Code(err) == codes.ResourceExhausted || status.Code(err) == codes.InvalidArgument {
			_, _ = e.client.CompleteWorkflowTask(ctx, &protos.WorkflowResponse{InstanceId: id, CompletionToken: item.GetCompletionToken()})
		}
	}
}

// fuzzWait is how long a work item may take. Longer is a hang.
const fuzzWait = 30 * time.Second

// answerTurn starts an instance, has its first work item answered, and waits until the result is
// stored.
func (e *endpointUnderFuzz) answerTurn(t *testing.T, c *composer, id string) {
	resp := &protos.WorkflowResponse{}
	c.fill(resp.ProtoReflect(), 8)
	e.answerWith(t, id, resp)
}

func (e *endpointUnderFuzz) answerWith(t *testing.T, id string, resp *protos.WorkflowResponse) {
	e.mu.Lock()
	e.answers[id] = func(*protos.WorkItem) proto.Message { return resp }
	e.mu.Unlock()
	for len(e.over) > 0 {
		<-e.over
	}
	e.start(t, orchestrate.StartRequest{Name: fuzzed, ID: id})
	for {
		select {
		case request := <-e.over:
			if request.Outcome != orchestrate.ItemStored {
				t.Fatalf("the work item was %s after the response %v", request.Outcome, resp)
			}
		case <-time.After(fuzzWait):
			t.Fatalf("no work item was done in %v after the response %v", fuzzWait, resp)
		}
		e.mu.Lock()
		_, waits := e.answers[id]
		e.mu.Unlock()
		if !waits {
			break
		}
	}
	if err := e.Terminate(t.Context(), tenant, id, ""); err != nil && forebay.CodeOf(err) != forebay.CodeGone && forebay.CodeOf(err) != forebay.CodeConflict && forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("the instance cannot be terminated: %v", err)
	}
}

// FuzzWorkerMessage sends every message that a worker or a client can send, made from the
// fuzzer's bytes, to a server with a real database. Nothing panics or hangs, no work item is
// abandoned, errors show no internals, and memory is bounded.
func FuzzWorkerMessage(f *testing.F) {
	methods := protos.File_orchestrator_service_proto.Services().ByName("TaskHubSidecarService").Methods()
	// The first byte chooses: 0 to 99 answer a work item.
	for i := range methods.Len() {
		f.Add([]byte{byte(100 + i), 1, 100, 2, 100, 3, 100, 4, 1, 101})
	}
	for action := range byte(20) {
		f.Add([]byte{0, 1 + 1, 1, action, 1, 100, 2, 1, 100, 3, 104, 0})
		f.Add([]byte{0, 1 + 1, 3, 1, 4, action, 1, 100, 0, 0, 1, 5, action, 2, 101, 0, 0, 0})
	}
	for name, actions := range invalidAnswers(f) {
		wire, err := proto.Marshal(&protos.WorkflowResponse{Actions: actions})
		if err != nil {
			f.Fatal(name, err)
		}
		f.Add(append([]byte{99}, wire...))
	}
	e := startFuzz(f)
	var inputs int
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		inputs++
		id := fmt.Sprintf("i%d", inputs)
		c := &composer{input[1:], []string{id, "i1", fuzzed, "-1", "{}", "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("1", 16) + "-", "\x00", `"x"`, "a:b"}}
		switch choice := int(input[0]); {
		case choice < 99:
			e.answerTurn(t, c, id)
		case choice == 99:
			resp := &protos.WorkflowResponse{}
			if proto.Unmarshal(input[1:], resp) != nil {
				return
			}
			e.answerWith(t, id, resp)
		default:
			e.send(t, c, methods.Get(choice%methods.Len()))
		}
		if inputs%1000 == 0 {
			checkHeap(t)
		}
	})
}

// maxHeap bounds the memory of the process.
const maxHeap = 512 << 20

func checkHeap(t *testing.T) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > maxHeap {
		t.Errorf("the heap holds %d bytes; expected up to %d", m.HeapAlloc, maxHeap)
	}
}

// send calls a method with a message made from bytes, and gives it little time: some methods
// wait for events.
func (e *endpointUnderFuzz) send(t *testing.T, c *composer, method protoreflect.MethodDescriptor) {
	if method.IsStreamingServer() {
		return // its message says only what a worker can do
	}
	req, resp := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	c.fill(req, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := e.conn.Invoke(ctx, fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), req, resp)
	if s := status.Convert(err); s.Code() == codes.Internal || s.Code() == codes.Unknown || strings.Contains(s.Message(), "panic") || strings.Contains(s.Message(), ".go:") {
		t.Errorf("%s of %v: %v", method.Name(), req, err)
	}
}
