package workflow

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Any file is either refused with positions inside it, or runs, twice in the same way.
func FuzzWorkflow(f *testing.F) {
	f.Add(string(analyzeDocument), `"a text"`)
	f.Add("workflow: w\nsteps:\n  a: {task: t, for_each: input, input: \"${index} ${item}\"}\n  b: {task: t, if: len(steps.a.result) > 1}\noutput: ${steps.b}\n", `[1, "x", null]`)
	f.Add("workflow: w\nsteps:\n  a: {task: t, input: |\n    ${\"}\" + input?.x}}\n", `{"x": "y"}`)
	f.Add("workflow: w\nsteps: {a: {task: t, input: ['${1/0}', '${join(map(input, string(#)), input[0])}', '${input matches \"(a*)*\"}', '${[1,2][5]}', '${toJSON(input)}', '${sum(input)}']}}", `[1e999, 1e400]`)
	f.Fuzz(func(t *testing.T, text, input string) {
		if len(input) > 1000 || !json.Valid([]byte(input)) {
			t.Skip()
		}
		d, err := Parse("w", []byte(text))
		if err != nil {
			problems, ok := errors.AsType[Problems](err)
			if !ok || len(problems) == 0 {
				t.Fatalf("%T %v", err, err)
			}
			lines := 2 // one may end in a break
			for _, r := range text {
				if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // YAML's line breaks
					lines++
				}
			}
			for _, p := range problems {
				if p.Line < 1 || p.Line > lines || p.Column < 1 {
					t.Fatalf("%s, of %d lines", p, lines)
				}
			}
			return
		}
		first, calls := complete(d, input, echo)
		second, again := complete(d, input, echo)
		if first != second || strings.Join(calls, "|") != strings.Join(again, "|") {
			t.Fatalf("%s, then %s", first, second)
		}
		if len(calls) > MaxSteps*MaxItems || first == "is not done" {
			t.Fatalf("%s after %d calls", first, len(calls))
		}
	})
}
