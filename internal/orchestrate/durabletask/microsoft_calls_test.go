package durabletask

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

const sidecar = "/TaskHubSidecarService/"

// rawMessage is a message with the given fields.
func rawMessage(parts ...[]byte) *emptypb.Empty {
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(slices.Concat(parts...))
	return m
}

func bytesField(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func messageField(t *testing.T, number protowire.Number, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return bytesField(number, b)
}

func numberField(number protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), n)
}

// repeated returns the values of field 1 of an answer, and the text in field 2.
func repeated(t *testing.T, answer *emptypb.Empty) (values [][]byte, cursor string) {
	t.Helper()
	err := fields(answer.ProtoReflect().GetUnknown(), func(number protowire.Number, _ protowire.Type, _ uint64, value []byte) (err error) {
		if number == 1 {
			values = append(values, value)
		} else {
			cursor, err = textIn(value)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return values, cursor
}

// A work item that a worker gives back is handed out again soon, and does not count as lost.
func TestAbandonedItemsAreHandedOutAgain(t *testing.T) {
	t.Parallel()
	p := run(t, db.Options{Path: dbtest.SQLite(t)}, orchestrate.Options{Remote: true})
	conn, client, stream := worker(t, p.serve(t))
	w := &remoteWorker{t, client, stream}
	abandon := func(kind, token string) error {
		return conn.Invoke(t.Context(), sidecar+"AbandonTask"+kind+"WorkItem", wrapperspb.String(token), &emptypb.Empty{})
	}
	id := p.start(t, orchestrate.StartRequest{Name: "theirs", Version: "2"})
	mustDo(t, abandon("Orchestrator", w.take().GetCompletionToken()))
	w.answer(schedule(1, "a"))
	first := w.take()
	mustDo(t, abandon("Activity", first.GetCompletionToken()))
	if err := abandon("Activity", first.GetCompletionToken()); status.Code(err) != codes.NotFound {
		t.Errorf("an item is given back twice: %v", err)
	}
	mustDo(t, w.finish(w.take(), `"x"`))
	w.answer(completes)
	p.ends(t, id, forebay.OrchestrationCompleted)
	attempts, err := p.Attempts(t.Context(), tenant, id)
	if err != nil || slices.ContainsFunc(attempts, func(a forebay.ActivityAttempt) bool { return a.Outcome == "lost" }) {
		t.Errorf("the attempts are %+v, %v", attempts, err)
	}
	p.server.known(1).sent.Range(func(token, _ any) bool {
		t.Errorf("the token %v is still known", token)
		return true
	})
}

// Clients of Microsoft's edition list instances and read their histories, restart and rewind.
func TestCallsOfMicrosoftsClients(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "fails", func(*task.WorkflowContext) (any, error) { return nil, errors.New("always") })
		addOrchestrator(t, r, "ends", func(ctx *task.WorkflowContext) (any, error) { return "done", nil })
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, orchestrate.Options{Registry: r})
		conn, _, _ := worker(t, p.serve(t))
		call := func(method string, in, out proto.Message) codes.Code {
			return status.Code(conn.Invoke(t.Context(), sidecar+method, in, out))
		}
		for id, name := range map[string]string{"e1": "ends", "e2": "ends", "f1": "fails", "w1": "waiting"} {
			p.start(t, orchestrate.StartRequest{Name: name, ID: id, Input: quoted("in")})
		}
		p.ends(t, "e1", forebay.OrchestrationCompleted)
		p.ends(t, "e2", forebay.OrchestrationCompleted)
		p.ends(t, "f1", forebay.OrchestrationFailed)

		const completed, failed = protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED
		before, after := timestamppb.New(time.Now().Add(-time.Hour)), timestamppb.New(time.Now().Add(time.Hour))
		for name, c := range map[string]struct {
			query [][]byte
			want  string
		}{
			"all":              {nil, "e1 e2 f1 w1"},
			"by one status":    {[][]byte{numberField(1, uint64(completed))}, "e1 e2"},
			"by two, packed":   {[][]byte{bytesField(1, []byte{byte(completed), byte(failed)})}, "e1 e2 f1"},
			"by none there is": {[][]byte{numberField(1, 99)}, ""},
			"by time":          {[][]byte{messageField(t, 2, before), messageField(t, 3, after)}, "e1 e2 f1 w1"},
			"later ones":       {[][]byte{messageField(t, 2, after)}, ""},
			"by prefix":        {[][]byte{messageField(t, 7, wrapperspb.String("e"))}, "e1 e2"},
			"of one task hub":  {[][]byte{messageField(t, 4, wrapperspb.String("hub"))}, "e1 e2 f1 w1"},
		} {
			var ids []string
			for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ { // pages of one
				query := append(slices.Clone(c.query), numberField(5, 1), numberField(8, uint64(len(name)%2)))
				if cursor != "" {
					query = append(query, messageField(t, 6, wrapperspb.String(cursor)))
				}
				var answer emptypb.Empty
				if code := call("QueryInstances", rawMessage(bytesField(1, slices.Concat(query...))), &answer); code != codes.OK {
					t.Fatalf("%s: %v", name, code)
				}
				var states [][]byte
				states, cursor = repeated(t, &answer)
				for _, b := range states {
					var state protos.WorkflowState
					mustDo(t, proto.Unmarshal(b, &state))
					ids = append(ids, state.InstanceId)
					if (state.GetInput().GetValue() == `"in"`) != (len(name)%2 == 1) || state.CreatedTimestamp == nil || state.LastUpdatedTimestamp == nil {
						t.Errorf("%s: %v", name, &state)
					}
				}
			}
			slices.Sort(ids)
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		}
		for name, c := range map[string]struct {
			query [][]byte
			want  int
		}{
			"all":            {nil, 4},
			"completed":      {[][]byte{messageField(t, 2, before), messageField(t, 3, after)}, 3},
			"completed then": {[][]byte{messageField(t, 3, before)}, 0},
		} {
			var answer emptypb.Empty
			code := call("ListInstanceIds", rawMessage(c.query...), &answer)
			if ids, cursor := repeated(t, &answer); code != codes.OK || len(ids) != c.want || cursor != "" {
				t.Errorf("ids, %s: %q, %v", name, ids, code)
			}
		}
		for i, m := range []*emptypb.Empty{
			rawMessage(bytesField(1, messageField(t, 2, &timestamppb.Timestamp{Nanos: -1}))), rawMessage(bytesField(1, []byte{0xff})),
			rawMessage(bytesField(1, messageField(t, 6, wrapperspb.String("?")))),
		} {
			if code := call("QueryInstances", m, &emptypb.Empty{}); code != codes.InvalidArgument {
				t.Errorf("query %d: %v", i, code)
			}
		}

		// A restart has the fields of a GetInstance, a rewind those of a suspend.
		var id wrapperspb.StringValue
		if code := call("RestartInstance", &protos.GetInstanceRequest{InstanceId: "e1"}, &id); code != codes.OK || id.Value != "e1" {
			t.Errorf("restart: %v, %q", code, id.Value)
		}
		if code := call("RestartInstance", &protos.GetInstanceRequest{InstanceId: "e2", GetInputsAndOutputs: true}, &id); code != codes.OK || id.Value == "e2" {
			t.Errorf("restart with another id: %v, %q", code, id.Value)
		}
		p.ends(t, id.Value, forebay.OrchestrationCompleted)
		for _, c := range []struct {
			method, id string
			want       codes.Code
		}{
			{"RestartInstance", "w1", codes.FailedPrecondition}, {"RestartInstance", "none", codes.NotFound},
			{"RewindInstance", "w1", codes.FailedPrecondition}, {"RewindInstance", "none", codes.NotFound}, {"RewindInstance", "f1", codes.OK},
		} {
			if code := call(c.method, &protos.SuspendRequest{InstanceId: c.id}, &emptypb.Empty{}); code != c.want {
				t.Errorf("%s of %s: %v, not %v", c.method, c.id, code, c.want)
			}
		}

		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, sidecar+"StreamInstanceHistory")
		mustDo(t, err)
		mustDo(t, stream.SendMsg(&protos.GetInstanceHistoryRequest{InstanceId: "e2"}))
		mustDo(t, stream.CloseSend())
		var events []*protos.HistoryEvent
		for {
			var chunk protos.GetInstanceHistoryResponse
			if err = stream.RecvMsg(&chunk); err != nil {
				break
			}
			events = append(events, chunk.Events...)
		}
		if got := typesOf(events); !errors.Is(err, io.EOF) || got != "ExecutionStarted ExecutionCompleted" {
			t.Errorf("the history is %s, %v", got, err)
		}
	})
}
