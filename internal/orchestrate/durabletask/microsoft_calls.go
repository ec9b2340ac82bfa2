package durabletask

import (
	"context"
	"slices"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// Microsoft's edition of the protocol has calls that the engine's edition lacks. Their messages
// are read into messages of the engine that have the same fields on the wire. Where there is
// none, an Empty keeps the fields as unknown ones.

// A microsoftCall serves one call by the task hub of its tenant.
type microsoftCall func(*taskHub, *call) error

var microsoftCalls = map[string]microsoftCall{
	"AbandonTaskOrchestratorWorkItem": answered((*taskHub).abandon),
	"AbandonTaskActivityWorkItem":     answered((*taskHub).abandon),
	"RestartInstance":                 answered((*taskHub).restart),
	"RewindInstance":                  answered((*taskHub).rewind),
	"QueryInstances":                  answered((*taskHub).queryInstances),
	"ListInstanceIds":                 answered((*taskHub).listIDs),
	"StreamInstanceHistory":           (*taskHub).streamHistory,
}

// answered returns a call with one message and one answer.
func answered[T any, M interface {
	*T
	proto.Message
}, A proto.Message](serve func(*taskHub, context.Context, M) (A, error)) microsoftCall {
	return func(h *taskHub, c *call) error {
		m := M(new(T))
		if err := c.RecvMsg(m); err != nil {
			return err
		}
		answer, err := serve(h, c.ctx, m)
		if err != nil {
			return err
		}
		return c.SendMsg(answer)
	}
}

// microsoftStreams describes the calls of Microsoft's edition.
func (e *endpoint) microsoftStreams() (streams []grpc.StreamDesc) {
	for name, serve := range microsoftCalls {
		streams = append(streams, grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			return e.serveCall(stream, name, func(c *call) error { return serve(taskHubOf(c.ctx), c) })
		}})
	}
	return streams
}

// abandon gives a work item back by its token, which is the only field of the message. Workers do
// so with versions that they do not have, and as they stop.
func (h *taskHub) abandon(_ context.Context, token *wrapperspb.StringValue) (*emptypb.Empty, error) {
	give, ok := h.sent.Load(token.GetValue())
	if !ok {
		return nil, status.Error(codes.NotFound, "nobody waits for this result any more")
	}
	give.(func(error))(orchestrate.ErrNoWorker)
	return &emptypb.Empty{}, nil
}

// restart has the message of GetInstance: an id and a boolean.
func (h *taskHub) restart(ctx context.Context, m *protos.GetInstanceRequest) (*wrapperspb.StringValue, error) {
	id, err := h.service.Restart(ctx, h.name, m.GetInstanceId(), m.GetGetInputsAndOutputs())
	if err != nil {
		return nil, preconditionOf(err)
	}
	return wrapperspb.String(id), nil
}

// rewind has the message of SuspendInstance: an id and a reason.
func (h *taskHub) rewind(ctx context.Context, m *protos.SuspendRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, preconditionOf(h.service.Rewind(ctx, h.name, m.GetInstanceId(), m.GetReason().GetValue()))
}

// preconditionOf returns an error as clients expect it of an instance with the wrong status.
func preconditionOf(err error) error {
	if forebay.CodeOf(err) == forebay.CodeConflict {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// maxHistoryChunk is how many bytes of a history are sent at once, if there are several events.
const maxHistoryChunk = 1 << 20

// streamHistory has the messages of GetInstanceHistory, and sends several.
func (h *taskHub) streamHistory(c *call) error {
	var m protos.GetInstanceHistoryRequest
	if err := c.RecvMsg(&m); err != nil {
		return err
	}
	row, err := h.service.Row(c.ctx, h.name, m.GetInstanceId())
	if err != nil {
		return err
	}
	events, err := h.service.ShownEvents(c.ctx, row.No)
	if err != nil {
		return err
	}
	chunk, size := &protos.GetInstanceHistoryResponse{}, 0
	for _, e := range withWorkerStepIDs(events) {
		if scheduled := e.GetTaskScheduled(); scheduled.GetTaskExecutionId() != "" {
			e = proto.CloneOf(e) // Microsoft's edition has tags in this field
			e.GetTaskScheduled().TaskExecutionId = ""
		}
		if size += proto.Size(e); size > maxHistoryChunk && len(chunk.Events) > 0 {
			if err := c.SendMsg(chunk); err != nil {
				return err
			}
			chunk, size = &protos.GetInstanceHistoryResponse{}, proto.Size(e)
		}
		chunk.Events = append(chunk.Events, e)
	}
	return c.SendMsg(chunk)
}

// instanceQuery is an InstanceQuery or a ListInstanceIdsRequest.
type instanceQuery struct {
	orchestrate.ListRequest
	named    bool // statuses are asked for, though perhaps none that exists here
	payloads bool
	// from and until bound when instances completed.
	from, until *timestamppb.Timestamp
}

// fields calls visit for each field of a message, with its number n or its bytes.
func fields(b []byte, visit func(number protowire.Number, kind protowire.Type, n uint64, value []byte) error) error {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errMalformed
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(number, kind, b); size < 0 {
			return errMalformed
		}
		var n uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			n, _ = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			value, _ = protowire.ConsumeBytes(b)
		}
		if err := visit(number, kind, n, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// takeStatuses reads a status, or several packed ones.
func (q *instanceQuery) takeStatuses(kind protowire.Type, n uint64, packed []byte) {
	q.named = true
	add := func(n uint64) {
		if s, ok := history.Statuses[protos.OrchestrationStatus(n)]; ok && !slices.Contains(q.Statuses, s) {
			q.Statuses = append(q.Statuses, s)
		}
	}
	if kind == protowire.VarintType {
		add(n)
	}
	for len(packed) > 0 {
		n, size := protowire.ConsumeVarint(packed)
		if size < 0 {
			return
		}
		add(n)
		packed = packed[size:]
	}
}

// queryPage is how many instances an answer has, and payloadPage how many with their payloads.
const (
	queryPage   = 100
	payloadPage = 20
)

// timeIn reads a field that is a Timestamp.
func timeIn(value []byte) (*timestamppb.Timestamp, error) {
	var at timestamppb.Timestamp
	if proto.Unmarshal(value, &at) != nil || at.CheckValid() != nil {
		return nil, status.Error(codes.InvalidArgument, "a time of the query is not valid")
	}
	return &at, nil
}

// textIn reads a field that is a StringValue.
func textIn(value []byte) (string, error) {
	var text wrapperspb.StringValue
	if proto.Unmarshal(value, &text) != nil {
		return "", errMalformed
	}
	return text.GetValue(), nil
}

// queryInstances answers a QueryInstancesRequest, whose field 1 is an InstanceQuery.
func (h *taskHub) queryInstances(ctx context.Context, m *emptypb.Empty) (*emptypb.Empty, error) {
	var q instanceQuery
	err := fields(m.ProtoReflect().GetUnknown(), func(number protowire.Number, _ protowire.Type, _ uint64, query []byte) error {
		if number != 1 {
			return nil
		}
		return fields(query, q.takeField)
	})
	if err != nil {
		return nil, err
	}
	page, next, err := h.find(ctx, q)
	if err != nil {
		return nil, err
	}
	// Field 1 of the answer repeats the states.
	var answer []byte
	for _, o := range page {
		state, err := proto.Marshal(stateOf(o, q.payloads))
		if err != nil {
			return nil, err
		}
		answer = protowire.AppendBytes(protowire.AppendTag(answer, 1, protowire.BytesType), state)
	}
	return withCursor(answer, next)
}

// takeField reads a field of an InstanceQuery.
func (q *instanceQuery) takeField(number protowire.Number, kind protowire.Type, n uint64, value []byte) (err error) {
	var at *timestamppb.Timestamp
	switch number {
	case 1:
		q.takeStatuses(kind, n, value)
	case 2, 3:
		if at, err = timeIn(value); err == nil && number == 2 {
			q.From = at.AsTime()
		} else if err == nil {
			q.Until = at.AsTime()
		}
	case 5:
		q.Limit = int(int32(n))
	case 6:
		q.Cursor, err = textIn(value)
	case 7:
		q.Prefix, err = textIn(value)
	case 8:
		q.payloads = n != 0
	}
	return err
}

// listIDs answers a ListInstanceIdsRequest.
func (h *taskHub) listIDs(ctx context.Context, m *emptypb.Empty) (*emptypb.Empty, error) {
	var q instanceQuery
	err := fields(m.ProtoReflect().GetUnknown(), func(number protowire.Number, kind protowire.Type, n uint64, value []byte) (err error) {
		switch number {
		case 1:
			q.takeStatuses(kind, n, value)
		case 2:
			q.from, err = timeIn(value)
		case 3:
			q.until, err = timeIn(value)
		case 4:
			q.Limit = int(int32(n))
		case 5:
			q.Cursor, err = textIn(value)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	page, next, err := h.find(ctx, q)
	if err != nil {
		return nil, err
	}
	var answer []byte
	for _, o := range page {
		answer = protowire.AppendString(protowire.AppendTag(answer, 1, protowire.BytesType), o.ID)
	}
	return withCursor(answer, next)
}

// withCursor returns an answer whose field 2 says where the next page begins.
func withCursor(answer []byte, next string) (*emptypb.Empty, error) {
	if next != "" {
		cursor, err := proto.Marshal(wrapperspb.String(next))
		if err != nil {
			return nil, err
		}
		answer = protowire.AppendBytes(protowire.AppendTag(answer, 2, protowire.BytesType), cursor)
	}
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(answer)
	return m, nil
}

// find returns a page of instances. It may be short, or empty, though there is a next one.
func (h *taskHub) find(ctx context.Context, q instanceQuery) (page []forebay.Orchestration, next string, err error) {
	if q.named && len(q.Statuses) == 0 {
		return nil, "", nil
	}
	most := queryPage
	if q.payloads {
		most = payloadPage
	}
	if q.Limit <= 0 || q.Limit > most {
		q.Limit = most
	}
	for {
		page, next, err = h.service.List(ctx, h.name, q.ListRequest)
		if err != nil || !q.payloads || q.Limit == 1 || sizeOf(page) < h.opts.MaxMessage {
			break
		}
		q.Limit /= 2 // clients receive so much
	}
	page = slices.DeleteFunc(page, func(o forebay.Orchestration) bool {
		at := o.CompletedAt
		return q.from != nil && (at == nil || at.Before(q.from.AsTime())) || q.until != nil && (at == nil || at.After(q.until.AsTime()))
	})
	return page, next, err
}

func sizeOf(page []forebay.Orchestration) (n int) {
	for _, o := range page {
		n += proto.Size(stateOf(o, true)) + 16
	}
	return n
}

func stateOf(o forebay.Orchestration, payloads bool) *protos.WorkflowState {
	m := metadataOf(orchestrate.OrchestrationRow{Orchestration: o})
	state := &protos.WorkflowState{InstanceId: m.InstanceId, Name: m.Name, Version: m.Version, WorkflowStatus: m.RuntimeStatus,
		CreatedTimestamp: m.CreatedAt, LastUpdatedTimestamp: m.LastUpdatedAt, CompletedTimestamp: m.CompletedAt, FailureDetails: m.FailureDetails}
	if m.ParentInstanceId != "" {
		state.ParentInstanceId = wrapperspb.String(m.ParentInstanceId)
	}
	if payloads {
		state.Input, state.Output, state.CustomStatus = m.Input, m.Output, m.CustomStatus
	}
	return state
}
