package durabletask

import (
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The trace data of Microsoft's SDKs is removed from a response. Everything else stays, also
// Dapr's fields with the same numbers.
func TestAnswersOfMicrosoftsSDKs(t *testing.T) {
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	answer := func(executionID string, version *protos.WorkflowVersion) *protos.WorkflowResponse {
		return &protos.WorkflowResponse{InstanceId: "i", CompletionToken: "c", Version: version, Actions: []*protos.WorkflowAction{
			{Id: 1, WorkflowActionType: &protos.WorkflowAction_ScheduleTask{ScheduleTask: &protos.ScheduleTaskAction{Name: "a", TaskExecutionId: executionID}}},
			{Id: 2, WorkflowActionType: &protos.WorkflowAction_CreateTimer{CreateTimer: &protos.CreateTimerAction{FireAt: timestamppb.Now()}}},
		}}
	}
	trace := func(span string, at *timestamppb.Timestamp) (b []byte) { // an OrchestrationTraceContext
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), encoded(wrapperspb.String(span)))
		return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), encoded(at))
	}
	// On the wire an execution id is text, as a trace context's bytes are.
	parent := string(encoded(&protos.TraceContext{TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}))
	version := &protos.WorkflowVersion{Patches: []string{"p1", "\tp2"}, Name: proto.String("v2")}
	for name, c := range map[string]struct {
		sent []byte
		want *protos.WorkflowResponse
	}{
		"Dapr's":                {encoded(answer("b7a4", version)), answer("b7a4", version)},
		"nothing of either":     {encoded(answer("", nil)), answer("", nil)},
		"a trace":               {append(encoded(answer("", nil)), protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), trace("00f067aa0ba902b7", timestamppb.Now()))...), answer("", nil)},
		"a trace without span":  {append(encoded(answer("", nil)), protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), trace("", &timestamppb.Timestamp{}))...), answer("", nil)},
		"a task's trace":        {encoded(answer(parent, nil)), answer("", nil)},
		"what cannot be a text": {append(encoded(answer("", nil)), protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), trace("x", &timestamppb.Timestamp{Seconds: 1_900_000_000}))...), answer("", nil)},
	} {
		before := string(c.sent)
		var got protos.WorkflowResponse
		if err := proto.Unmarshal(withoutTraces(c.sent), &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, a := range c.want.Actions {
			if timer := a.GetCreateTimer(); timer != nil {
				timer.FireAt = got.Actions[i].GetCreateTimer().GetFireAt()
			}
		}
		if !proto.Equal(&got, c.want) {
			t.Errorf("%s: got %v, want %v", name, &got, c.want)
		}
		if string(c.sent) != before {
			t.Errorf("%s: the answer was changed", name)
		}
	}
}

// If the whole message can be decoded, the result can be decoded.
func FuzzWithoutTraces(f *testing.F) {
	f.Add([]byte{0x12, 3, 0x12, 1, 0x2a, 0x32, 0})
	f.Add([]byte{0x32, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after protos.WorkflowResponse
		if proto.Unmarshal(b, &before) == nil && proto.Unmarshal(withoutTraces(b), &after) != nil {
			t.Fatal("it cannot be read any more")
		}
	})
}
