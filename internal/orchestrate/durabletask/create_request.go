package durabletask

import (
	"slices"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// checkCall says why the engine cannot take a message; nil: it can.
func checkCall(m any) error {
	switch m := m.(type) {
	case *protos.CreateInstanceRequest:
		if why := firstOf(checkTrace(m.GetParentTraceContext()), checkTime("has a start", m.GetScheduledStartTimestamp(), false)); why != "" {
			return status.Error(codes.InvalidArgument, "the instance "+why)
		}
	case *protos.PurgeInstancesRequest:
		filter := m.GetPurgeInstanceFilter()
		if why := firstOf(checkTime("purge begins", filter.GetCreatedTimeFrom(), false), checkTime("purge ends", filter.GetCreatedTimeTo(), false)); why != "" {
			return status.Error(codes.InvalidArgument, "the "+why)
		}
	}
	return nil
}

// reusePolicy is the field of CreateInstanceRequest in Microsoft's edition of the protocol that
// says which instances a new one replaces. It is a message whose field 1 lists statuses. The
// engine's edition lacks it.
const reusePolicy = 6

// replaceable returns the final statuses of instances that a new one replaces; nil: any.
func replaceable(m *protos.CreateInstanceRequest) (ends []forebay.OrchestrationStatus) {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || size < 0 {
			return ends
		}
		if number == reusePolicy && kind == protowire.BytesType {
			policy, _ := protowire.ConsumeBytes(b[n:])
			ends = append(ends, endsOf(policy)...)
			if ends == nil {
				ends = []forebay.OrchestrationStatus{} // it names none
			}
		}
		b = b[n+size:]
	}
	return ends
}

// endsOf returns the final statuses in field 1 of a message, packed or not.
func endsOf(policy []byte) (ends []forebay.OrchestrationStatus) {
	add := func(v uint64) {
		if end, ok := history.Statuses[protos.OrchestrationStatus(v)]; ok && end.Terminal() && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	for b := policy; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || size < 0 {
			return ends
		}
		value := b[n : n+size]
		switch {
		case number == 1 && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			add(v)
		case number == 1 && kind == protowire.BytesType:
			packed, _ := protowire.ConsumeBytes(value)
			for len(packed) > 0 {
				v, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return ends
				}
				add(v)
				packed = packed[n:]
			}
		}
		b = b[n+size:]
	}
	return ends
}
