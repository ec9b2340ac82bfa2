package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *Definition {
	t.Helper()
	d, err := Parse("w", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// complete runs a workflow whose calls end at once. It returns the calls, and the output or the
// failure.
func complete(d *Definition, input string, answer func(Call) (string, *Failure)) (output string, calls []string) {
	r := NewRun(d, json.RawMessage(input), 1000)
	for queue := r.Next(); len(queue) > 0; queue = append(queue[1:], r.Next()...) {
		c := queue[0]
		calls = append(calls, fmt.Sprintf("%s %s", c.Step.Name, c.Input))
		result, failure := answer(c)
		r.Ended(c.Number, json.RawMessage(result), failure)
	}
	if !r.Done() {
		return "is not done", calls
	}
	raw, failure := r.Output()
	if failure != nil {
		return failure.Error(), calls
	}
	return string(raw), calls
}

// echo answers with the input, but fails for "bad".
func echo(c Call) (string, *Failure) {
	if string(c.Input) == `"bad"` {
		return "", &Failure{Type: "refused", Message: "it was refused"}
	}
	return string(c.Input), nil
}

// The orders of calls are in the histories of running instances. A change of them must not break
// those.
func TestRun(t *testing.T) {
	for _, c := range []struct{ name, text, input, output, calls string }{
		{"one step", "steps: {a: {task: t}}", `{"b":1}`, `{"a":{"b":1}}`, `a {"b":1}`},
		{"chain", "steps:\n  b: {task: t, input: \"${steps.a.result}!\"}\n  a: {task: t, input: {x: \"${input}\", y: [1, null]}}\noutput: ${steps.b.result}", `"<i>"`,
			`"{\"x\":\"<i>\",\"y\":[1,null]}!"`, `a {"x":"<i>","y":[1,null]}|b "{\"x\":\"<i>\",\"y\":[1,null]}!"`},
		{"types", "steps: {a: {task: t, input: [\"${input.n + 1}\", \"n is ${input.n}\", \"$${x}\", true, 2024-01-01, 1.5, \"${input.big}\"]}}\noutput: ${steps.a.result}",
			`{"n":41,"big":9007199254740993}`, `[42,"n is 41","${x}",true,"2024-01-01",1.5,9007199254740993]`, `a [42,"n is 41","${x}",true,"2024-01-01",1.5,9007199254740993]`},
		{"types of JSON in a text", "steps: {a: {task: t, input: [\"${fromJSON(input).id}\", \"${fromJSON(input).n % 2}\", \"${string(fromJSON(input).m)}\", \"${fromJSON(input).x}\"]}}\noutput: ${steps.a.result}",
			`"{\"id\":9007199254740993,\"n\":3,\"m\":1000000,\"x\":1.5}"`, `[9007199254740993,1,"1000000",1.5]`, `a [9007199254740993,1,"1000000",1.5]`},
		{"no JSON in a text", "steps: {a: {task: t, input: \"${fromJSON(input)}\"}}", `"{} and more"`, "step a: w:2:32: the expression cannot be evaluated with these values", ``},
		{"skipped", "steps:\n  a: {task: t, if: input.long}\n  b: {task: t, input: \"${steps.a.status} ${steps.a.result ?? 'nothing'}\"}\noutput: ${steps.b.result}",
			`{"long":false}`, `"skipped nothing"`, `b "skipped nothing"`},
		{"condition", "steps: {a: {task: t, if: \"any(input, # > 2)\"}}\noutput: ${steps.a.status}", `[1,2,3]`, `"succeeded"`, `a [1,2,3]`},
		{"no condition", "steps: {a: {task: t, if: input}}", `1`, `step a: w:2:26: gives neither true nor false`, ``},
		{"failure", "steps:\n  a: {task: t}\n  b: {task: t, after: a}", `"bad"`, `step a: it was refused`, `a "bad"`},
		{"others are awaited", "steps:\n  a: {task: t}\n  b: {task: t, input: b}\n  c: {task: t, after: b}", `"bad"`, `step a: it was refused`, `a "bad"|b "b"`},
		{"goes on", "steps:\n  a: {task: t, continue_on_error: true}\n  b: {task: t, input: \"${steps.a.error.type}: ${steps.a.error.message}\"}\noutput: [\"${steps.a.status}\", \"${steps.a.result}\", \"${steps.b.result}\"]",
			`"bad"`, `["failed",null,"refused: it was refused"]`, `a "bad"|b "refused: it was refused"`},
		{"list", "steps: {a: {task: t, for_each: input, parallel: 2}}\noutput: ${steps.a.result}", `["x","y","z"]`, `["x","y","z"]`, `a "x"|a "y"|a "z"`},
		{"items", "steps: {a: {task: t, for_each: [1, \"${input}\"], input: \"${index}: ${item}\"}}\noutput: ${join(steps.a.result, \", \")}", `2`, `"0: 1, 1: 2"`, `a "0: 1"|a "1: 2"`},
		{"no items", "steps:\n  a: {task: t, for_each: input}\n  b: {task: t, input: \"${len(steps.a.result)}\"}\noutput: ${steps.b.result}", `[]`, `0`, `b 0`},
		{"no list", "steps: {a: {task: t, for_each: input}}", `"x"`, `step a: w:2:32: for_each gives no list`, ``},
		{"an item fails", "steps: {a: {task: t, for_each: input, parallel: 1}}", `["x","bad","y"]`, `step a, item 1: it was refused`, `a "x"|a "bad"`},
		{"items go on", "steps: {a: {task: t, for_each: input, parallel: 1, continue_on_error: true}}\noutput: {r: \"${steps.a.result}\", e: \"${steps.a.error}\"}", `["x","bad","y"]`,
			`{"e":{"message":"it was refused","type":"refused"},"r":["x",null,"y"]}`, `a "x"|a "bad"|a "y"`},
		{"an item has no input", "steps: {a: {task: t, for_each: input, input: \"${item.x.y}\", continue_on_error: true}}\noutput: ${steps.a.result}", `[{},{"x":{"y":1}}]`, `[null,1]`, `a 1`},
		{"missing", "steps: {a: {task: t, input: \"${input.x.y}\"}}", `{}`, `step a: w:2:32: cannot fetch y from <nil>`, ``},
		{"optional", "steps: {a: {task: t, input: \"${input?.x?.y}\"}}\noutput: ${steps.a.result}", `{}`, `null`, `a null`},
		{"null in a text", "steps: {a: {task: t, input: \"x${input.x}\"}}", `{}`, "step a: w:2:33: is null within a text; ${x ?? \"\"} says what stands there then", ``},
		{"no value is told", "steps: {a: {task: t, input: \"${int(input)}\"}}", `"secret"`, "step a: w:2:32: the expression cannot be evaluated with these values", ``},
		{"too large", "steps: {a: {task: t, input: [\"${input}\", \"${input}\"]}}", `"` + strings.Repeat("x", 600) + `"`, "step a: w:2:45: becomes too large", ``},
		{"output fails", "steps: {a: {task: t}}\noutput: ${steps.a.result.x.y}", `{}`, "output: w:3:11: cannot fetch y from <nil>", `a {}`},
		{"functions", "steps: {a: {task: t, input: \"${join(map(input, upper(#)), '-')} ${replace('aXbX', 'X', '')} ${toJSON(input)} ${len(filter(input, # matches '^y'))}\"}}\noutput: ${steps.a.result}",
			`["x","y"]`, `"X-Y ab [\"x\",\"y\"] 1"`, `a "X-Y ab [\"x\",\"y\"] 1"`},
		{"lists of all kinds", "steps: {a: {task: t, input: \"${[join(['a', 'b'], '-'), join(split(input, ','), '+'), join([], 'x')]}\"}}\noutput: ${steps.a.result}", `"x,y"`,
			`["a-b","x+y",""]`, `a ["a-b","x+y",""]`},
		{"no list to join", "steps: {a: {task: t, input: \"${join(input, '-')}\"}}", `{}`, "step a: w:2:32: the expression cannot be evaluated with these values", ``},
		{"join", "steps: {a: {task: t, input: \"${join(input, '-')}\"}}", `[1]`, "step a: w:2:32: the expression cannot be evaluated with these values", ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			output, calls := complete(parse(t, "workflow: w\n"+c.text), c.input, echo)
			if got := strings.Join(calls, "|"); output != c.output || got != c.calls {
				t.Errorf("output %s\nwant   %s\ncalls %s\nwant  %s", output, c.output, got, c.calls)
			}
		})
	}
}

func TestListsHaveALimit(t *testing.T) {
	d := parse(t, "workflow: w\nsteps: {a: {task: t, for_each: input}}\n")
	input := "[1" + strings.Repeat(",1", MaxItems) + "]"
	r := NewRun(d, json.RawMessage(input), 1<<20)
	if calls := r.Next(); len(calls) != 0 {
		t.Fatalf("%d calls", len(calls))
	}
	if _, failure := r.Output(); failure == nil || !strings.Contains(failure.Error(), "1001 items; the limit is 1000") {
		t.Error(failure)
	}
}

// An expression that multiplies the size of a text is refused before it builds the text.
func TestTextsDoNotMultiply(t *testing.T) {
	input, _ := json.Marshal(map[string]any{"long": strings.Repeat("x", 1<<20), "list": make([]string, 1<<10)})
	for _, e := range []string{"join(input.list, input.long)", "replace(input.long, 'x', input.long)", "replace(input.long, '', 'a text of some length')"} {
		d := parse(t, fmt.Sprintf("workflow: w\nsteps: {a: {task: t, input: \"${%s}\"}}\n", e))
		r := NewRun(d, input, 100<<20)
		r.Next()
		if _, failure := r.Output(); failure == nil || failure.Type != TypeExpression {
			t.Errorf("%s: %v", e, failure)
		}
	}
}

// For any graph of steps and any order in which calls end, each step is called once for each of
// its items. It begins after all steps it waits for and keeps its bound. The same order leads to
// the same calls. Without the failures that stopped a workflow (a rewind) it makes the same calls
// and goes on.
func TestAnyGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "steps")
		position := rapid.Permutation(indices(n)).Draw(t, "order in the text")
		type spec struct {
			after           []int
			items, parallel int
			fails, goesOn   bool
		}
		specs := make([]spec, n)
		for i := range specs {
			for before := range i {
				if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
					specs[i].after = append(specs[i].after, before)
				}
			}
			specs[i].items = rapid.IntRange(-1, 4).Draw(t, "items") // -1: no list
			specs[i].parallel = rapid.IntRange(1, 3).Draw(t, "parallel")
			specs[i].fails = rapid.IntRange(0, 6).Draw(t, "fails") == 0
			specs[i].goesOn = rapid.Bool().Draw(t, "goes on")
		}
		var text strings.Builder
		text.WriteString("workflow: w\nsteps:\n")
		for _, i := range position {
			s := specs[i]
			fmt.Fprintf(&text, "  s%d:\n    task: t\n    continue_on_error: %t\n", i, s.goesOn)
			if s.items >= 0 {
				list, _ := json.Marshal(indices(s.items))
				fmt.Fprintf(&text, "    for_each: %s\n    parallel: %d\n", list, s.parallel)
			}
			if len(s.after) > 0 {
				fmt.Fprintf(&text, "    after: [s%s]\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(s.after), " ", ", s"), "[]"))
			}
		}
		d, err := Parse("w", []byte(text.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		number := func(s *Step) (i int) {
			fmt.Sscanf(s.Name, "s%d", &i)
			return i
		}
		r, again := NewRun(d, nil, 1000), NewRun(d, nil, 1000)
		called, ended, open := make([]int, n), make([]int, n), map[int]Call{}
		type end struct {
			number int
			failed bool
		}
		var all []string
		var ends []end
		stopped := false
		wanted := func(i int) int { return max(specs[i].items, -specs[i].items) }
		begin := func() {
			calls, same := r.Next(), again.Next()
			if fmt.Sprint(describe(calls)) != fmt.Sprint(describe(same)) {
				t.Fatalf("%v, then %v", describe(calls), describe(same))
			}
			all = append(all, describe(calls)...)
			for _, c := range calls {
				i := number(c.Step)
				called[i]++
				open[c.Number] = c
				if stopped {
					t.Fatalf("%s begins after a failure", c.Step.Name)
				}
				for _, before := range specs[i].after {
					if ended[before] != wanted(before) {
						t.Fatalf("%s begins before s%d has ended", c.Step.Name, before)
					}
				}
				if specs[i].items >= 0 && called[i]-ended[i] > specs[i].parallel {
					t.Fatalf("%s has %d calls at once", c.Step.Name, called[i]-ended[i])
				}
			}
		}
		for begin(); len(open) > 0; begin() {
			var numbers []int
			for number := range len(called) * 5 {
				if _, ok := open[number]; ok {
					numbers = append(numbers, number)
				}
			}
			at := rapid.SampledFrom(numbers).Draw(t, "which ends")
			i := number(open[at].Step)
			delete(open, at)
			ended[i]++
			var failure, copied *Failure
			if specs[i].fails {
				failure, copied = &Failure{Type: "x", Message: "y"}, &Failure{Type: "x", Message: "y"}
				stopped = stopped || !specs[i].goesOn
			}
			ends = append(ends, end{at, failure != nil})
			r.Ended(at, json.RawMessage("1"), failure)
			again.Ended(at, json.RawMessage("1"), copied)
		}
		if !r.Done() {
			t.Fatal("nothing is under way, and it is not done")
		}
		for i := range specs {
			if called[i] > wanted(i) || !stopped && called[i] != wanted(i) {
				t.Fatalf("s%d has %d calls of %d", i, called[i], wanted(i))
			}
		}
		if _, failure := r.Output(); (failure != nil) != stopped {
			t.Fatalf("stopped %t: %v", stopped, failure)
		}

		rewound := NewRun(d, nil, 1000)
		waiting := rewound.Next()
		was := describe(waiting)
		finish := func(number int, failure *Failure) {
			waiting = slices.DeleteFunc(waiting, func(c Call) bool { return c.Number == number })
			rewound.Ended(number, json.RawMessage("1"), failure)
			calls := rewound.Next()
			waiting, was = append(waiting, calls...), append(was, describe(calls)...)
		}
		for _, e := range ends {
			switch {
			case !e.failed:
				finish(e.number, nil)
			case r.Tolerates(e.number):
				finish(e.number, &Failure{Type: "x", Message: "y"})
			}
		}
		if len(was) < len(all) || !slices.Equal(was[:len(all)], all) {
			t.Fatalf("%v, rewound %v", all, was)
		}
		for len(waiting) > 0 {
			finish(waiting[0].Number, nil)
		}
		if _, failure := rewound.Output(); !rewound.Done() || failure != nil {
			t.Fatalf("rewound: %v", failure)
		}
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func describe(calls []Call) (all []string) {
	for _, c := range calls {
		all = append(all, fmt.Sprintf("%d %s %s", c.Number, c.Step.Name, c.Input))
	}
	return all
}

func TestBuiltin(t *testing.T) {
	for _, d := range Builtin() {
		output, calls := complete(d, `"a text"`, func(c Call) (string, *Failure) { return `"` + c.Step.Task + `"`, nil })
		if output != `{"entities":"extract","sentiment":"sentiment","summary":"summarize"}` || len(calls) != 3 {
			t.Errorf("%s after %v", output, calls)
		}
	}
}
