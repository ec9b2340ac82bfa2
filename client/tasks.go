package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// tasks is the part of Client about tasks.
type tasks struct{ *endpoint }

// Task is a kind of work the server knows.
type Task struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Queue       string `json:"queue"`
	MaxAttempts int    `json:"max_attempts"` // 0: the queue's
	// The JSON schemas of the task's input and output, and an example of an input. Only Task
	// returns them. They are nil if the task has no description.
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Example      json.RawMessage `json:"example,omitempty"`
}

// Tasks returns the tasks that jobs may ask for.
func (c *tasks) Tasks(ctx context.Context) ([]Task, error) {
	return items[Task](ctx, c.endpoint, path("tasks"))
}

// Task returns one task with its schemas.
func (c *tasks) Task(ctx context.Context, name string) (Task, error) {
	var task Task
	if err := checkID("task", name); err != nil {
		return task, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("tasks", name)}, &task)
	return task, err
}
