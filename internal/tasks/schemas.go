package tasks

import (
	"embed"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
)

// schemas are the inputs and outputs of the built-in tasks, by name. prompt is for tasks with
// prompts of their own.
//
//go:embed schemas/*.json
var schemas embed.FS

// describe gives a task the descriptions of a built-in task's input and output.
func describe(task *forebay.Task, name string) {
	text, err := schemas.ReadFile("schemas/" + name + ".json")
	if err != nil {
		panic(err) // never: it is compiled in for every built-in task
	}
	var described struct{ Input, Output, Example json.RawMessage }
	if err := json.Unmarshal(text, &described); err != nil {
		panic(err)
	}
	task.InputSchema, task.OutputSchema, task.Example = described.Input, described.Output, described.Example
}

// Schemas returns the JSON schemas of the built-in tasks' inputs and results, under names such as
// ChatInput and ChatResult.
func Schemas() map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name := range builtins {
		var task forebay.Task
		describe(&task, name)
		title := strings.ToUpper(name[:1]) + name[1:]
		all[title+"Input"], all[title+"Result"] = task.InputSchema, task.OutputSchema
	}
	return all
}
