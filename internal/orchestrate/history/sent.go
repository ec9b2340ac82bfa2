package history

import "github.com/dapr/durabletask-go/api/protos"

// Sent returns the events among what an orchestrator has decided, as the engine passes them on.
func Sent(actions []*protos.WorkflowAction) (messages []*protos.WorkflowRuntimeStateMessage) {
	for _, a := range actions {
		if send := a.GetSendEvent(); send != nil {
			e := NewEvent()
			e.EventType = &protos.HistoryEvent_EventSent{EventSent: &protos.EventSentEvent{Name: send.Name, Input: send.Data}}
			messages = append(messages, &protos.WorkflowRuntimeStateMessage{HistoryEvent: e, TargetInstanceId: send.GetInstance().GetInstanceId()})
		}
	}
	return messages
}

// Received converts an event that was sent into an event that is raised, as its receiver sees
// it. Others stay as they are.
func Received(e *protos.HistoryEvent) *protos.HistoryEvent {
	sent := e.GetEventSent()
	if sent == nil {
		return e
	}
	raised := NewEvent()
	raised.Timestamp = e.Timestamp
	raised.EventType = &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: sent.Name, Input: sent.Input}}
	return raised
}
