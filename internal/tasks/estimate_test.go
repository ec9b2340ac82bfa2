package tasks

import (
	"encoding/json"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// What is set aside for a call is what the call asks for.
func TestEstimateIsWhatIsSent(t *testing.T) {
	models := simulated(t, modelsim.ProviderFaults{})
	builtin := build(t, Config{Models: models})
	configured := build(t, Config{Models: models, Tasks: map[string]Option{"summarize": {MaxOutputTokens: 33}, "chat": {MaxOutputTokens: 44}, "free": {Prompt: "{{.Input}}", MaxOutputTokens: 55}}})
	for _, c := range []struct {
		tasks       map[string]forebay.Task
		task, input string
		want        int64
	}{
		{builtin, "summarize", `"A long text."`, 400},
		{builtin, "summarize", `{"text":"A long text."}`, 400},
		{builtin, "summarize", `{"text":"A long text.","max_words":1000}`, 2050},
		{builtin, "summarize", ` {"text":"A long text.","max_words":20}`, 90},
		{configured, "summarize", `{"text":"A long text.","max_words":1000}`, 33},
		{builtin, "chat", `"Hi"`, 0},
		{builtin, "chat", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":7}`, 7},
		{builtin, "chat", `{"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":8,"max_tokens":9}`, 8},
		{configured, "chat", `{"messages":[{"role":"user","content":"Hi"}]}`, 44},
		{builtin, "chat", `{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}],"max_tokens":9}`, 9}, // the last one counts
		{configured, "free", `{"text":"Hi","max_tokens":1}`, 55},
		{builtin, "sentiment", `"Fine."`, 100},
	} {
		task, input := c.tasks[c.task], json.RawMessage(c.input)
		if _, err := task.Run(t.Context(), forebay.TaskCall{Input: input}); err != nil {
			t.Errorf("%s %s: %v", c.task, c.input, err)
			continue
		}
		sent, estimated := int64(models.chat.MaxOutputTokens), task.Estimate(input, int64(len(input))).MaxOutputTokens
		if sent != c.want || estimated != c.want {
			t.Errorf("%s %s: %d are sent and %d estimated, want %d", c.task, c.input, sent, estimated, c.want)
		}
	}
}
