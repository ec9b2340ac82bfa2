package batches

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// A line whose body no job may have is found before any line runs.
func TestLinesThatNoJobMayHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ value, code string }{
		"good":        {`"x"`, ""},
		"deep enough": {strings.Repeat("[", forebay.MaxJSONDepth-2) + strings.Repeat("]", forebay.MaxJSONDepth-2), ""},
		"too deep":    {strings.Repeat("[", forebay.MaxJSONDepth+1) + strings.Repeat("]", forebay.MaxJSONDepth+1), codeInvalidLine},
		"not UTF-8":   {"\"\xff\"", codeInvalidLine},
	} {
		v := validation{endpoint: "/v1/chat/completions", serves: func(string) (bool, bool) { return true, true }, maxLines: 2}
		line := `{"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"model":"m","x":` + c.value + `}}`
		if err := v.run(newReader(strings.NewReader(line), 1<<20, 0, 0)); err != nil {
			t.Fatal(err)
		}
		code := ""
		if len(v.errors) > 0 {
			code = v.errors[0].Code
		}
		if code != c.code || len(v.errors) > 1 {
			t.Errorf("%s: %+v", name, v.errors)
		}
	}
}
