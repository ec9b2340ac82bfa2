package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// known are the tasks and queues of the tests.
var known = Known{
	Task:  func(name string) bool { return slices.Contains([]string{"summarize", "extract", "classify"}, name) },
	Queue: func(name string) bool { return name == "default" },
}

func TestProblemsHavePlaces(t *testing.T) {
	many := "workflow: w\nsteps:\n"
	for i := range MaxSteps + 1 {
		many += fmt.Sprintf("  s%d: {task: summarize}\n", i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "w.yaml:1:1: the workflow is empty"},
		{"comment alone", "# nothing\n", "w.yaml:1:1: the workflow is empty"},
		{"no YAML", "workflow: w\nsteps: [\n", "w.yaml:"},
		{"tab", "workflow: w\nsteps:\n\ta: 1\n", "w.yaml:3:1: is no YAML: "},
		{"no mapping", "- a\n", "w.yaml:1:1: a workflow is a mapping"},
		{"two documents", "workflow: w\nsteps: {a: {task: summarize}}\n---\nworkflow: v\n", "is more than one YAML document"},
		{"anchor", "workflow: &w w\nsteps: {a: {task: summarize}}\n", "w.yaml:1:11: anchors and aliases are not supported"},
		{"no name", "steps: {a: {task: summarize}}\n", "w.yaml:1:1: workflow is missing"},
		{"bad name", "workflow: a b\nsteps: {a: {task: summarize}}\n", `w.yaml:1:11: "a b" cannot name a workflow`},
		{"unknown key", "workflow: w\nstep: {}\nsteps: {a: {task: summarize}}\n", `w.yaml:2:1: unknown key "step"`},
		{"no steps", "workflow: w\n", "w.yaml:1:1: steps is missing"},
		{"empty steps", "workflow: w\nsteps: {}\n", "w.yaml:2:8: steps is a mapping of at least one"},
		{"too many steps", many, "w.yaml:3:3: there are 101 steps; the limit is 100"},
		{"duplicate step", "workflow: w\nsteps:\n  a: {task: summarize}\n  b: {task: extract}\n  a: {task: extract}\n", `w.yaml:5:3: "a" stands in line 3 already`},
		{"duplicate key", "workflow: w\nsteps:\n  a:\n    task: summarize\n    task: extract\n", `w.yaml:5:5: "task" stands in line 4 already`},
		{"step's name", "workflow: w\nsteps:\n  my-step: {task: summarize}\n", `w.yaml:3:3: "my-step" cannot name a step`},
		{"no task", "workflow: w\nsteps:\n  a: {input: x}\n", "w.yaml:3:3: step a has no task"},
		{"unknown task", "workflow: w\nsteps:\n  a:\n    task: sumarize\n", "w.yaml:4:11: there is no task sumarize"},
		{"unknown queue", "workflow: w\nsteps:\n  a:\n    task: summarize\n    queue: fast\n", "w.yaml:5:12: there is no queue fast"},
		{"unknown key of a step", "workflow: w\nsteps:\n  a:\n    task: summarize\n    needs: b\n", `w.yaml:5:5: unknown key "needs"; a step has task`},
		{"dangling after", "workflow: w\nsteps:\n  a:\n    task: summarize\n    after: [b]\n", `w.yaml:5:13: there is no step "b"`},
		{"dangling result", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: the ${steps.b.result}\n", `w.yaml:5:24: there is no step "b"`},
		{"dangling output", "workflow: w\nsteps:\n  a: {task: summarize}\noutput:\n  x: \"${steps.a.result + steps.c.result}\"\n", `w.yaml:5:32: there is no step "c"`},
		{"itself", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${steps.a.result}\n", "w.yaml:5:20: step a waits for itself"},
		{"cycle", "workflow: w\nsteps:\n  a: {task: summarize, after: c}\n  b: {task: summarize, after: a}\n  c: {task: summarize, if: steps.b.result.ok}\n", "w.yaml:3:3: these steps wait for each other: a → c → b → a"},
		{"steps alone", "workflow: w\nsteps:\n  a: {task: summarize}\noutput: ${steps}\n", "w.yaml:4:11: steps must be followed by the name of a step"},
		{"steps by value", "workflow: w\nsteps:\n  a: {task: summarize}\noutput: ${steps[input]}\n", "w.yaml:4:11: steps must be followed by the name of a step"},
		{"syntax", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${input +}\n", "w.yaml:5:20: unexpected token EOF"},
		{"syntax in a block", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: |\n      A text\n      and ${input.}\n", "w.yaml:7:"},
		{"unknown name", "workflow: w\nsteps:\n  a: {task: summarize, input: \"${inputs.x}\"}\n", "w.yaml:3:34: unknown name inputs"},
		{"item without list", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${item}\n", "w.yaml:5:14: unknown name item"},
		{"no end", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: some ${input\n", "w.yaml:5:19: ${ without an end"},
		{"empty expression", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${ }\n", "w.yaml:5:14: the expression is empty"},
		{"braces where none belong", "workflow: w\nsteps:\n  a:\n    task: summarize\n    if: ${input.x}\n", "w.yaml:5:9: an expression stands here without ${ and }"},
		{"clock", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${now()}\n", "w.yaml:5:14: "},
		{"random order", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${keys(input)}\n", "w.yaml:5:14: "},
		{"everything", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${$env}\n", "w.yaml:5:14: unknown name $env"},
		{"variables", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${let x = input; x}\n", "variables cannot be declared"},
		{"nested conditions", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: \"${filter(input, any(input, # == 1))}\"\n", "can only use the item (# or .NAME) and constants"},
		{"quadratic", "workflow: w\nsteps:\n  a:\n    task: summarize\n    if: any(input.a, .x in input.b)\n", "can only use the item (# or .NAME) and constants"},
		{"range", "workflow: w\nsteps:\n  a:\n    task: summarize\n    for_each: 1..5\n", "w.yaml:5:16: there are no ranges"},
		{"pattern", "workflow: w\nsteps:\n  a:\n    task: summarize\n    if: input.x matches input.y\n", "the pattern of matches must be a constant"},
		{"long expression", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${\"" + strings.Repeat("a", maxExpression) + "\"}\n", "w.yaml:5:14: the expression is too long"},
		{"large expression", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${1" + strings.Repeat("+1", maxNodes) + "}\n", "exceeds maximum allowed nodes"},
		{"deep", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: " + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + "\n", "is too large: at most"},
		{"very deep", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: " + strings.Repeat("[", 500) + strings.Repeat("]", 500) + "\n", "is too deep"},
		{"infinite", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: .inf\n", "w.yaml:5:12: .inf is no number that JSON knows"},
		{"binary", "workflow: w\nsteps:\n  a:\n    task: summarize\n    input: !!binary aGk=\n", "w.yaml:5:12: !!binary is no kind of value"},
		{"parallel", "workflow: w\nsteps:\n  a:\n    task: summarize\n    for_each: input\n    parallel: 0\n", "w.yaml:6:15: must be a whole number from 1 to 100"},
		{"parallel without list", "workflow: w\nsteps:\n  a:\n    task: summarize\n    parallel: 3\n", "w.yaml:5:15: parallel is for steps with for_each"},
		{"timeout", "workflow: w\nsteps:\n  a:\n    task: summarize\n    timeout: 30\n", "w.yaml:5:14: must be a duration like 30s"},
		{"cost", "workflow: w\nsteps:\n  a:\n    task: summarize\n    max_cost_usd: -1\n", "w.yaml:5:19: must be a number of US dollars"},
		{"tokens", "workflow: w\nsteps:\n  a:\n    task: summarize\n    max_total_tokens: 0\n", "w.yaml:5:23: must be a whole number from 1 to 1000000000000"},
		{"continue", "workflow: w\nsteps:\n  a:\n    task: summarize\n    continue_on_error: maybe\n", "w.yaml:5:24: must be true or false"},
		{"large", "workflow: w # " + strings.Repeat("x", MaxBytes), "w.yaml:1:1: the workflow has 65550 bytes; the limit is 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("w.yaml", []byte(c.text))
			if err == nil {
				err = d.Check(known)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestAllProblemsAreSaid(t *testing.T) {
	_, err := Parse("w.yaml", []byte("workflow: w\nsteps:\n  a:\n    task: summarize\n    input: ${inputs}\n    prio: 3\n  b:\n    timeout: x\n"))
	problems, _ := err.(Problems)
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if !slices.Equal(lines, []int{5, 6, 7, 8}) {
		t.Errorf("%v", err)
	}
}

func TestVersionIsOfTheText(t *testing.T) {
	parse := func(text string) *Definition {
		t.Helper()
		d, err := Parse("w.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	text := "workflow: w\nsteps: {a: {task: summarize}}\n"
	if a, b, c := parse(text), parse(text), parse(text+"# other\n"); a.Version != b.Version || a.Version == c.Version || a.Text != text {
		t.Errorf("%s %s %s", a.Version, b.Version, c.Version)
	}
}
