package workflow

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record the golden order of calls anew")

const goldenText = `workflow: w
steps:
  tail: {task: t, after: [list, branch], input: "${len(steps.list.result)} ${steps.branch.status}"}
  list: {task: t, for_each: input.items, parallel: 2, input: "${index}: ${item}", continue_on_error: true}
  branch: {task: t, if: "input.n > 1", input: "${steps.first.result}"}
  skipped: {task: t, if: "input.n > 9"}
  after: {task: t, after: skipped, input: after}
  first: {task: t, input: "${input.n}"}
  nested: {task: t, for_each: steps.list.result, parallel: 3}
`

const goldenInput = `{"n": 2, "items": ["a", "bad", "c", "d", "e"]}`

// goldenLine is a step of what an instance has been through: a call that began, or one that ended.
type goldenLine struct {
	Call  string          `json:"call,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	Ended *int            `json:"ended,omitempty"`
}

// A running instance is replayed by the number of each call. What an earlier build recorded, with
// ends of calls among their beginnings, must lead to the same calls in the same order. If this
// fails, running instances cannot continue after an upgrade; recording the file anew does not
// help them.
func TestGoldenCalls(t *testing.T) {
	const file = "testdata/calls.jsonl"
	r := NewRun(parse(t, goldenText), json.RawMessage(goldenInput), 1000)
	var calls []Call
	var lines []string
	note := func(l goldenLine) {
		line, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	begin := func() {
		for _, c := range r.Next() {
			if c.Number != len(calls) {
				t.Errorf("call %d is number %d", len(calls), c.Number)
			}
			calls = append(calls, c)
			note(goldenLine{Call: c.Step.Name, Input: c.Input})
		}
	}
	end := func(n int) {
		note(goldenLine{Ended: &n})
		if strings.Contains(string(calls[n].Input), "bad") {
			r.Ended(n, nil, &Failure{Type: "refused", Message: "it was refused"})
		} else {
			r.Ended(n, calls[n].Input, nil)
		}
		begin()
	}
	begin()
	if *update {
		for ended := map[int]bool{}; !r.Done(); { // the latest of those under way, and every third time the earliest
			n := -1
			for i := range calls {
				if !ended[i] && (n < 0 || len(ended)%3 != 0) {
					n = i
				}
			}
			ended[n] = true
			end(n)
		}
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	recorded := strings.Split(strings.TrimSpace(string(content)), "\n")
	for at, line := range recorded {
		var l goldenLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Ended != nil && at == len(lines) && *l.Ended < len(calls) {
			end(*l.Ended)
		}
		if at >= len(lines) || lines[at] != line {
			now := "nothing"
			if at < len(lines) {
				now = lines[at]
			}
			t.Fatalf("line %d was %s, and is %s now", at+1, line, now)
		}
	}
	if len(lines) != len(recorded) || !r.Done() {
		t.Errorf("%d lines, not %d", len(lines), len(recorded))
	}
}
