package workflow

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// link finds which steps each step waits for.
func (p *parser) link(d *Definition) {
	number := map[string]int{}
	for i, s := range d.Steps {
		number[s.Name] = i
	}
	use := func(e *expression, found func(int, Position)) {
		for i, name := range e.steps {
			if n, ok := number[name]; ok {
				found(n, e.stepsAt[i])
			} else {
				p.bad(e.stepsAt[i], "there is no step %.80q", name)
			}
		}
	}
	for _, s := range d.Steps {
		wait := func(n int, at Position) {
			if d.Steps[n] == s {
				p.bad(at, "step %s waits for itself", s.Name)
			} else if !slices.Contains(s.After, n) {
				s.After = append(s.After, n)
			}
		}
		for _, name := range s.after {
			if n, ok := number[name.Value]; ok {
				wait(n, positionOf(name))
			} else {
				p.bad(positionOf(name), "there is no step %.80q", name.Value)
			}
		}
		for _, e := range s.expressions() {
			use(e, wait)
		}
		slices.Sort(s.After)
	}
	for _, e := range d.output.expressions() {
		use(e, func(int, Position) {})
	}
	p.refuseCycle(d)
}

// expressions are those that must be evaluated before the step begins.
func (s *Step) expressions() []*expression {
	all := append(s.each.expressions(), s.input.expressions()...)
	if s.condition != nil {
		all = append(all, s.condition)
	}
	return all
}

// refuseCycle names the steps of a cycle, if there is one.
func (p *parser) refuseCycle(d *Definition) {
	const visiting, clear = 1, 2
	state := make([]int, len(d.Steps))
	var path []int
	var visit func(n int) bool
	visit = func(n int) bool {
		switch state[n] {
		case clear:
			return true
		case visiting:
			var names []string
			for _, n := range append(path[slices.Index(path, n):], n) {
				names = append(names, d.Steps[n].Name)
			}
			p.bad(d.Steps[n].at, "these steps wait for each other: %s", strings.Join(names, " → "))
			return false
		}
		state[n] = visiting
		path = append(path, n)
		for _, before := range d.Steps[n].After {
			if !visit(before) {
				return false
			}
		}
		path, state[n] = path[:len(path)-1], clear
		return true
	}
	for n := range d.Steps {
		if !visit(n) {
			return
		}
	}
}

// names reads the value of after: a name, or a list of names.
func (p *parser) names(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		p.text(n)
		return []*yaml.Node{n}
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.bad(positionOf(n), "must be the name of a step, or a list of them")
		return nil
	}
	for _, name := range n.Content {
		p.text(name)
	}
	return n.Content
}

// Known is the tasks and queues that a configuration has.
type Known struct {
	Task, Queue func(name string) bool
}

// Check finds tasks and queues that do not exist. The error is Problems.
func (d *Definition) Check(known Known) error {
	var problems Problems
	for _, s := range d.Steps {
		if !known.Task(s.Task) {
			problems = append(problems, Problem{d.file, s.taskAt, "there is no task " + clip(s.Task)})
		}
		if q := s.Options.Queue; q != "" && !known.Queue(q) {
			problems = append(problems, Problem{d.file, s.queueAt, "there is no queue " + clip(q)})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// clip shortens a name for an error.
func clip(name string) string {
	if r := []rune(name); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return name
}
