package history

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dapr/durabletask-go/api/protos"
)

// A generated id is as long as an id may be at most, however deep a sub-orchestration is nested.
func TestIDsOfNestedChildren(t *testing.T) {
	const most = 256
	seen := map[string]bool{}
	for _, root := range []string{"root", strings.Repeat("x", most), strings.Repeat("ü", most/2)} {
		caller := root
		for number := int64(1); number < 100; number++ {
			for id := range int32(3) {
				created := &protos.CreateChildWorkflowAction{}
				NameChildren([]*protos.WorkflowAction{{Id: id, WorkflowActionType: &protos.WorkflowAction_CreateChildWorkflow{CreateChildWorkflow: created}}}, caller, number, most)
				switch got := created.InstanceId; {
				case len(got) > most || !utf8.ValidString(got):
					t.Fatalf("at depth %d the id is %q", number, got)
				case seen[root+" "+got]:
					t.Fatalf("two have the id %s", got)
				default:
					seen[root+" "+got] = true
				}
				if id == 2 {
					caller = created.InstanceId
				}
			}
		}
	}
}
