package bridge

import (
	"runtime"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// chatOf returns what a provider of chat completions gets for a request.
func chatOf(t *testing.T, body string) gjson.Result {
	t.Helper()
	r, err := Parse([]byte(body), "")
	if err != nil {
		t.Fatal(err)
	}
	chat, err := r.chat(Dialect{}, false)
	if err != nil {
		t.Fatal(err)
	}
	return gjson.ParseBytes(chat)
}

// No two functions have the same name in chat completions, and each name is one that providers
// take.
func TestFunctionsOfNamespacesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", 60)
	chat := chatOf(t, `{"model":"m","input":"a","tools":[
		{"type":"function","name":"a__b__c"},
		{"type":"namespace","name":"a","tools":[{"type":"function","name":"b__c"},{"type":"function","name":"`+long+`1"},{"type":"function","name":"`+long+`2"}]},
		{"type":"namespace","name":"a__b","tools":[{"type":"function","name":"c"},{"type":"function","name":"d e"}]},
		{"type":"namespace","name":"mcp__x__","tools":[{"type":"function","name":"y"}]}]}`)
	seen := map[string]bool{}
	for _, name := range chat.Get("tools.#.function.name").Array() {
		if seen[name.Str] || len(name.Str) > 64 || strings.ContainsFunc(name.Str, unusual) {
			t.Errorf("the name %q is another's, too long or not valid", name.Str)
		}
		seen[name.Str] = true
	}
	if len(seen) != 7 || !seen["a__b__c"] || !seen["mcp__x__y"] {
		t.Errorf("the functions are %v", seen)
	}
}

// What a namespace says of itself goes before what its functions say, while both are short.
func TestFunctionsOfNamespacesSayBoth(t *testing.T) {
	t.Parallel()
	said := strings.Repeat("s", maxChatDescription-len("About.\n\n"))
	chat := chatOf(t, `{"model":"m","input":"a","tools":[{"type":"namespace","name":"n","description":"About.","tools":[
		{"type":"function","name":"a","description":"`+said+`"},{"type":"function","name":"b","description":"`+said+`s"},{"type":"function","name":"c"}]}]}`)
	for i, want := range []string{"About.\n\n" + said, said + "s", "About."} {
		if got := chat.Get("tools").Array()[i].Get("function.description").Str; got != want {
			t.Errorf("function %d says %.20q with %d bytes, not %.20q with %d", i, got, len(got), want, len(want))
		}
	}
}

// A namespace is checked with all its tools. One with a tool that no provider of chat completions
// has needs another provider.
func TestNamespacesAreChecked(t *testing.T) {
	t.Parallel()
	const f = `,{"type":"function","name":"f"}`
	for tool, param := range map[string]string{
		`{"type":"namespace","name":"n","tools":[` + strings.Repeat(f, maxGrouped)[1:] + `]}`:                                                         "",
		`{"type":"namespace","name":"n","tools":[` + strings.Repeat(f, maxGrouped)[1:] + `]},{"type":"namespace","name":"m","tools":[` + f[1:] + `]}`: "tools",
		`{"type":"namespace","name":"` + strings.Repeat("n", maxNamespaceName+1) + `","tools":[` + f[1:] + `]}`:                                       "tools[0].name",
		`{"type":"namespace","name":"` + strings.Repeat("n", maxNamespaceName) + `","tools":[` + f[1:] + `]}`:                                         "",
		`{"type":"namespace","tools":[{"type":"function","name":"f"}]}`:                                                                               "tools[0].name",
		`{"type":"namespace","name":"n"}`:                                                     "tools[0].tools",
		`{"type":"namespace","name":"n","tools":[]}`:                                          "tools[0].tools",
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},7]}`:          "tools[0].tools[1]",
		`{"type":"namespace","name":"n","tools":[{"type":"function"}]}`:                       "tools[0].tools[0].name",
		`{"type":"namespace","name":"n","tools":[{"name":"f"}]}`:                              "tools[0].tools[0].type",
		`{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}`:              "beyond tools[0].tools[0].type",
		`{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"f"}]}`:           "beyond tools[0].tools[0].type",
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","strict":1}]}`: "",
	} {
		r, err := Parse([]byte(`{"model":"m","input":"a","tools":[`+tool+`]}`), "")
		got := ""
		switch {
		case err != nil:
			got = err.(*Error).Param
		case r.Beyond() != nil:
			got = "beyond " + r.Beyond().(*Error).Param
		}
		if got != param {
			t.Errorf("%s is refused for %q, not for %q", tool, got, param)
		}
	}
}

// However often a choice names a namespace, its functions are named once.
func TestAllowedNamespacesAreNamedOnce(t *testing.T) {
	t.Parallel()
	chat := chatOf(t, `{"model":"m","input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]}],
		"tool_choice":{"type":"allowed_tools","tools":[{"type":"namespace","name":"n"},{"type":"function","namespace":"n","name":"f"},{"type":"namespace","name":"n"}]}}`)
	if got := chat.Get("tool_choice.allowed_tools.tools.#.function.name").Raw; got != `["n__f","n__g"]` {
		t.Errorf("allowed are %s", got)
	}
}

// What a request makes the server copy grows with its size, and not with its size for each of its
// functions.
func TestNamespacesTakeMemoryByTheirSize(t *testing.T) {
	functions := strings.Repeat(`,{"type":"function","name":"f"}`, maxGrouped)[1:]
	long := strings.Repeat("n", 1<<20)
	for about, body := range map[string]string{
		"a long name":        `"tools":[{"type":"namespace","name":"` + long + `","tools":[` + functions + `]}]`,
		"a long description": `"tools":[{"type":"namespace","name":"n","description":"` + long + `","tools":[` + functions + `]}]`,
	} {
		body = `{"model":"m","input":"a",` + body + `}`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if r, err := Parse([]byte(body), ""); err == nil {
			r.chatTools(Object{})
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 100<<20 {
			t.Errorf("%s: %d bytes are allocated for %d", about, got, len(body))
		}
	}
}
