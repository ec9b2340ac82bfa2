package durabletask

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The engine uses Dapr's edition of the Durable Task protocol. In Microsoft's
// (github.com/microsoft/durabletask-protobuf) two fields of a response have other meanings: they
// hold trace data. These fields are removed before a response is decoded.

const (
	answerActions = 2 // OrchestratorResponse.actions
	answerTrace   = 6 // Microsoft: orchestrationTraceContext; Dapr: version
	actionTask    = 2 // OrchestratorAction.scheduleTask
	// Microsoft: ScheduleTaskAction.parentTraceContext; Dapr: taskExecutionId.
	taskTrace         = 5
	traceSpan         = 1 // OrchestrationTraceContext.spanID, a StringValue
	traceStart        = 2 // OrchestrationTraceContext.spanStartTime, a Timestamp
	fieldOfBytes byte = 0x0a
)

// withoutTraces returns a response without the fields that only Microsoft's SDKs set. The given
// bytes are not changed.
func withoutTraces(answer []byte) []byte {
	return rewrite(answer, func(number protowire.Number, value []byte) ([]byte, bool) {
		switch number {
		case answerTrace:
			return value, !isTrace(value)
		case answerActions:
			return rewrite(value, withoutTaskTrace), true
		}
		return value, true
	})
}

// withoutTaskTrace is withoutTraces for the fields of an action.
func withoutTaskTrace(number protowire.Number, value []byte) ([]byte, bool) {
	if number != actionTask {
		return value, true
	}
	return rewrite(value, func(number protowire.Number, value []byte) ([]byte, bool) {
		// A trace context begins with a text field. No id begins with the tag of that, a line
		// feed.
		return value, number != taskTrace || len(value) > 0 && value[0] != fieldOfBytes
	}), true
}

// isTrace reports whether a field is Microsoft's trace context. The other possibility is a
// version, which has only texts.
func isTrace(b []byte) bool {
	for len(b) > 0 {
		number, kind, value, rest := field(b)
		switch b = rest; {
		case kind != protowire.BytesType:
			return false
		case number == traceSpan && !isStringValue(value), number == traceStart && !isTimestamp(value):
			return false
		}
	}
	return true
}

// isStringValue reports whether b can be a StringValue: empty, or one text.
func isStringValue(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	number, kind, _, rest := field(b)
	return number == 1 && kind == protowire.BytesType && len(rest) == 0
}

// isTimestamp reports whether b can be a Timestamp: seconds and nanoseconds.
func isTimestamp(b []byte) bool {
	for len(b) > 0 {
		number, kind, _, rest := field(b)
		if number < 1 || number > 2 || kind != protowire.VarintType {
			return false
		}
		b = rest
	}
	return true
}

// field returns the first field of a message. If none can be read, the number is 0 and there is
// no rest.
func field(b []byte) (number protowire.Number, kind protowire.Type, value, rest []byte) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, 0, nil, nil
	}
	size := protowire.ConsumeFieldValue(number, kind, b[n:])
	if size < 0 {
		return 0, 0, nil, nil
	}
	value, rest = b[n:n+size], b[n+size:]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}
	return number, kind, value, rest
}

// rewrite returns a message whose length-delimited fields are changed or dropped by change. It
// returns the message itself if nothing changes or if it cannot be read.
func rewrite(message []byte, change func(protowire.Number, []byte) (value []byte, kept bool)) []byte {
	var out []byte
	copied := 0 // bytes of message that are in out
	for at := 0; at < len(message); {
		number, kind, value, rest := field(message[at:])
		if number == 0 {
			return message
		}
		next := len(message) - len(rest)
		if kind == protowire.BytesType {
			changed, kept := change(number, value)
			if !kept || len(changed) != len(value) {
				out = append(out, message[copied:at]...)
				if copied = next; kept {
					out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), changed)
				}
			}
		}
		at = next
	}
	if copied == 0 {
		return message
	}
	return append(out, message[copied:]...)
}
