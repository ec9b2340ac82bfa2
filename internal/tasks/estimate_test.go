package tasks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
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
		{builtin, "summarize", `{"max_words":1000,"text":"A long text.","max_words":20,"focus":"max_words"}`, 90}, // the last one counts
		{builtin, "summarize", `{"max_w\u006frds":1000,"text":"A long text."}`, 2050},
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

// A model may use up a task's own limit by thinking. Later calls have the deployment's limit, and
// that is set aside for them. A limit of the configuration stays. The task's own limit stays if
// the model wrote too much. It comes back if the model seemed to think only because a text made it
// write so, or one tenant would take it from all.
func TestModelsMayThink(t *testing.T) {
	const input = `"Fine."`
	thinks := model.ChatResponse{FinishReason: "length", Usage: forebay.TokenUsage{OutputTokens: 100}}
	const answer = `{"sentiment": "positive", "score": 1}`
	answers := model.ChatResponse{FinishReason: "stop", Text: answer, Usage: forebay.TokenUsage{OutputTokens: 12}}
	tagged, rambles := thinks, thinks
	tagged.Text, rambles.Text = "<think>\nThe user", `{"sentiment": "pos pos pos`
	for _, c := range []struct {
		name       string
		option     Option
		answer     model.ChatResponse
		sent, next int
		says       string
		then       string // an answer after that
		last       int
	}{
		{"in silence", Option{}, thinks, 100, 0, "cut off at its token limit of 100, which what the model thinks counts for", answer, 0},
		{"in its text", Option{}, tagged, 100, 0, "cut off at its token limit of 100, which what the model thinks counts for", "<think>\nFine.</think>" + answer, 0},
		{"as a text has it", Option{}, tagged, 100, 0, "cut off at its token limit of 100, which what the model thinks counts for", answer, 100},
		{"a configured limit", Option{MaxOutputTokens: 70}, thinks, 70, 70, "cut off at its token limit of 70, which what the model thinks counts for", answer, 70},
		{"without end", Option{}, rambles, 100, 100, "cut off at its token limit of 100", answer, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			models := &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: canned{chat: c.answer}}}
			task := build(t, Config{Models: models, Tasks: map[string]Option{"sentiment": c.option}})["sentiment"]
			estimate := func() int64 { return task.Estimate(json.RawMessage(input), int64(len(input))).MaxOutputTokens }
			for _, want := range []int{c.sent, c.next} {
				estimated := estimate()
				_, err := run(t, task, input)
				if failure := taskError(t, err); want == c.sent && !strings.HasSuffix(failure.Message, c.says) {
					t.Errorf("it says %q, want %q at the end", failure.Message, c.says)
				}
				if models.chat.MaxOutputTokens != want || estimated != int64(want) {
					t.Errorf("%d are sent and %d estimated, want %d", models.chat.MaxOutputTokens, estimated, want)
				}
			}
			answers.Text = c.then
			models.Provider = canned{chat: answers}
			if _, err := run(t, task, input); err != nil {
				t.Fatal(err)
			}
			if got := estimate(); got != int64(c.last) {
				t.Errorf("%d are estimated after an answer, want %d", got, c.last)
			}
		})
	}
}
