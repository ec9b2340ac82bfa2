package workflow

import "github.com/forebayhq/forebay"

// Outline describes the workflow for clients: its steps, and which wait for which. Its text is
// part of that.
func (d *Definition) Outline() forebay.Workflow {
	w := forebay.Workflow{Name: d.Name, Description: d.Description, Version: d.Version, Text: d.Text, Steps: make([]forebay.WorkflowStep, len(d.Steps))}
	for i, s := range d.Steps {
		o := s.Options
		step := forebay.WorkflowStep{Name: s.Name, Task: s.Task, After: []string{}, Conditional: s.condition != nil, ForEach: s.each != nil,
			ContinueOnError: s.ContinueOnError, Queue: o.Queue, Priority: o.Priority, MaxAttempts: o.MaxAttempts, MaxCostUSD: o.MaxCostUSD,
			MaxTotalTokens: o.MaxTotalTokens, TimeoutSeconds: o.Timeout.Seconds()}
		if step.ForEach {
			step.Parallel = s.parallel
		}
		for _, n := range s.After {
			step.After = append(step.After, d.Steps[n].Name)
		}
		w.Steps[i] = step
	}
	return w
}
