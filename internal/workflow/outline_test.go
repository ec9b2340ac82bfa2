package workflow

import (
	"reflect"
	"testing"

	"github.com/forebayhq/forebay"
)

// The outline of a workflow has its steps in their order, and the edges that expressions make.
func TestOutlineHasStepsAndEdges(t *testing.T) {
	text := `workflow: review
description: what people say
steps:
  each:
    task: sentiment
    for_each: input.reviews
    parallel: 3
    continue_on_error: true
  words:
    task: extract
    queue: slow
    priority: 7
    timeout: 30s
  report:
    task: chat
    if: len(steps.each.result) > 1
    after: words
    input: ${steps.each.result}
`
	d, err := Parse("review.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := d.Outline()
	priority := 7
	want := []forebay.WorkflowStep{
		{Name: "each", Task: "sentiment", After: []string{}, ForEach: true, Parallel: 3, ContinueOnError: true},
		{Name: "words", Task: "extract", After: []string{}, Queue: "slow", Priority: &priority, TimeoutSeconds: 30},
		{Name: "report", Task: "chat", After: []string{"each", "words"}, Conditional: true},
	}
	if !reflect.DeepEqual(got.Steps, want) || got.Name != "review" || got.Description != "what people say" || got.Version != d.Version || got.Text != text {
		t.Errorf("%+v", got)
	}
}
