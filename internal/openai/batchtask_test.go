package openai

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
)

// Where only some deployments speak Responses, a line that needs one of them says so.
func TestLinesThatNeedResponses(t *testing.T) {
	t.Parallel()
	tasks := BatchTasks(nil, nil, []string{"mixed", "plain"}, func(model string) bool { return model == "mixed" })
	for _, c := range []struct {
		endpoint, model, body string
		needs                 bool
	}{
		{"/v1/responses", "mixed", `{"input":"a","tools":[{"type":"web_search"}]}`, true},
		{"/v1/responses", "mixed", `{"input":"a","tools":[{"type":"function","name":"f"}]}`, false},
		{"/v1/responses", "mixed", `{"input":7}`, false},
		{"/v1/responses", "plain", `{"input":"a","tools":[{"type":"web_search"}]}`, false},
		{"/v1/chat/completions", "mixed", `{"messages":[],"tools":[{"type":"web_search"}]}`, false},
	} {
		i := slices.IndexFunc(tasks, func(task forebay.Task) bool { return task.Name == BatchTask(c.endpoint, c.model) })
		if need := tasks[i].Estimate(json.RawMessage(c.body), int64(len(c.body))); need.AsResponses != c.needs || !need.AsOpenAI {
			t.Errorf("%s of %s to %s needs %+v", c.body, c.model, c.endpoint, need)
		}
	}
}
