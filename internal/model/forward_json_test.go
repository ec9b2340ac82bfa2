package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

func TestForwardedBody(t *testing.T) {
	for _, c := range []struct{ in, want, streamed string }{
		{`{}`, `{"model":"m\"<"}`, `{"model":"m\"<","stream_options":{"include_usage":true}}`},
		{` { } `, ` {"model":"m\"<" } `, ` {"model":"m\"<","stream_options":{"include_usage":true} } `},
		{`{"a":1}`, `{"model":"m\"<","a":1}`, `{"model":"m\"<","stream_options":{"include_usage":true},"a":1}`},
		{`{"model":null,"model":{"model":2},"MODEL":[3]}`, `{"model":"m\"<","model":"m\"<","MODEL":"m\"<"}`,
			`{"stream_options":{"include_usage":true},"model":"m\"<","model":"m\"<","MODEL":"m\"<"}`},
		{`{"Model":"x","a\\":"\\\"","model\\":1}`, `{"model":"m\"<","Model":"m\"<","a\\":"\\\"","model\\":1}`,
			`{"model":"m\"<","stream_options":{"include_usage":true},"Model":"m\"<","a\\":"\\\"","model\\":1}`},
		{`{"model":1,"stream_options":null}`, `{"model":"m\"<","stream_options":null}`, `{"model":"m\"<","stream_options":{"include_usage":true}}`},
		{`{"model":1,"stream_options":{}}`, `{"model":"m\"<","stream_options":{}}`, `{"model":"m\"<","stream_options":{"include_usage":true}}`},
		{`{"model":1,"stream_options":{"x":{"include_usage":false}}}`, `{"model":"m\"<","stream_options":{"x":{"include_usage":false}}}`,
			`{"model":"m\"<","stream_options":{"include_usage":true,"x":{"include_usage":false}}}`},
		{`{"model":1,"stream_options":7}`, `{"model":"m\"<","stream_options":7}`, `{"model":"m\"<","stream_options":7}`},
	} {
		for _, usage := range []bool{false, true} {
			want := c.want
			if usage {
				want = c.streamed
			}
			got, added := forwardedBody([]byte(c.in), objectStart([]byte(c.in)), `m"<`, usage)
			if string(got) != want || added != (usage && want != c.want) {
				t.Errorf("%s, usage %v: %s, added %v, want %s", c.in, usage, got, added, want)
			}
		}
	}
}

// FuzzForwardedBody compares the edits of a body with what encoding/json reads. Only the model
// and the request for usage differ, and other values have the same bytes.
func FuzzForwardedBody(f *testing.F) {
	for _, s := range []string{`{}`, askStream, ` {"model" : "x" , "b":[1,{"model":"y"},"\\"],"\u006dodel":2,"stream_options":{"include_usage":false}}`,
		`{"stream_options":null,"usage":null,"a":"}]\""}`, `{"usage":null}`, `{"usage":null,"x":1}`, `{"a":1, "usage" : null , "b":2}`, `[{}]`, "{\"\xff\":\"\xff\"}"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, usage bool) {
		var before map[string]json.RawMessage
		isObject := json.Unmarshal(body, &before) == nil && before != nil
		start := objectStart(body)
		if (start >= 0) != isObject {
			t.Fatalf("an object begins at %d; encoding/json reads one: %v", start, isObject)
		}
		if start < 0 {
			return
		}
		in := bytes.Clone(body)
		edited, added := forwardedBody(body, start, "small", usage)
		var after map[string]json.RawMessage
		if err := json.Unmarshal(edited, &after); err != nil {
			t.Fatalf("%q became %q: %v", body, edited, err)
		}
		if !bytes.Equal(in, body) {
			t.Fatalf("the caller's body was changed to %q", body)
		}
		if string(after["model"]) != `"small"` {
			t.Errorf("the model is %s", after["model"])
		}
		for name, value := range after {
			switch {
			case strings.EqualFold(name, "model"):
				if string(value) != `"small"` {
					t.Errorf("%q is %s", name, value)
				}
			case usage && name == streamOption:
				var options map[string]any
				if added && (json.Unmarshal(value, &options) != nil || options["include_usage"] != true) {
					t.Errorf("stream_options are %s", value)
				}
			case !bytes.Equal(value, before[name]):
				t.Errorf("%q was %s and is %s", name, before[name], value)
			}
		}
		delete(after, "model")
		delete(after, streamOption)
		delete(before, "model")
		delete(before, streamOption)
		if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
			t.Errorf("the members of %q are those of %q", body, edited)
		}

		shorter := withoutNullUsage(body, start)
		if jsoncheck.Valid(shorter) != true || len(shorter) > len(body) {
			t.Fatalf("%q without its usage is %q", body, shorter)
		}
		if string(before["usage"]) == "null" && len(shorter) == len(body) {
			t.Errorf("%q kept its usage", body)
		}
		readNeed(pathResponses, body)
	})
}

func TestWithoutNullUsage(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"usage":null}`:                              `{"a":1}`,
		`{"usage":null,"a":1}`:                              `{"a":1}`,
		`{ "a" : 1 , "usage" : null , "b":{"usage":null} }`: `{ "a" : 1 , "b":{"usage":null} }`,
		`{"usage":null}`:                                    `{}`,
		`{"usage":{}}`:                                      `{"usage":{}}`,
	} {
		if got := withoutNullUsage([]byte(in), 0); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestForwardEmbeddings(t *testing.T) {
	floats := `{"object":"list" ,"data":[ {"index":0,"embedding":[0.5, -1e-3],"x":1} , {"embedding":[1]}],"usage":{"prompt_tokens":2}}`
	coded := `{"object":"list" ,"data":[ {"index":0,"embedding":"AAAAP28Sg7o=","x":1} , {"embedding":"AACAPw=="}],"usage":{"prompt_tokens":2}}`
	decoded := strings.Replace(floats, "0.5, -1e-3", "0.5,-0.001", 1)
	for name, c := range map[string]struct{ ask, answer, want string }{
		"base64 as floats": {`{"encoding_format":"base64","input":"x"}`, floats, coded},
		"base64":           {`{"encoding_format":"base64","input":"x"}`, coded, coded},
		"floats as base64": {`{"encoding_format":"float","input":"x"}`, coded, decoded},
		"default":          {`{"input":"x"}`, coded, decoded},
		"floats":           {`{"input":"x"}`, floats, floats},
		"other":            {`{"encoding_format":"int8","input":"x"}`, coded, coded},
		"no vector":        {`{"input":"x"}`, strings.Replace(coded, "AACA", "A", 1), ""},
		"not finite":       {`{"input":"x"}`, strings.Replace(coded, "AACAPw==", "AACAfw==", 1), ""},
		"no numbers":       {`{"encoding_format":"base64","input":"x"}`, strings.Replace(floats, "[1]", "[[1]]", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, resp, err := forwardTo(t, writing("application/json", c.answer), HTTPConfig{}, pathEmbeddings, c.ask)
			if c.want == "" {
				wantTask(t, err, forebay.ClassTransient, CodeMalformedResponse)
			} else if err != nil || resp.Usage.InputTokens != 2 {
				t.Fatalf("%v, %+v", err, resp)
			}
			if k.all() != c.want {
				t.Errorf("passed on %s", k.all())
			}
		})
	}
}

func TestEstimateForward(t *testing.T) {
	image := `"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"`
	for name, c := range map[string]struct {
		path, body string
		want       forebay.CallEstimate
	}{
		"chat":       {pathChat, `{"messages":[{"role":"user","content":"12345678"}],"max_completion_tokens":10,"n":3}`, forebay.CallEstimate{PromptTokens: 6, MaxOutputTokens: 30}},
		"any case":   {pathChat, `{"Messages":[{"role":"user","content":"12345678"}],"MAX_TOKENS":10,"N":3}`, forebay.CallEstimate{PromptTokens: 6, MaxOutputTokens: 30}},
		"no limit":   {pathChat, `{"messages":[{"role":"user","content":"12345678"}]}`, forebay.CallEstimate{PromptTokens: 6}},
		"image":      {pathChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"1234"},{"type":"image_url","image_url":{"url":` + image + `}}]}],"max_tokens":1}`, forebay.CallEstimate{PromptTokens: 805, MaxOutputTokens: 1}},
		"responses":  {pathResponses, `{"instructions":"1234","input":[{"role":"user","content":[{"type":"input_image","image_url":` + image + `}]}],"max_output_tokens":16}`, forebay.CallEstimate{PromptTokens: 801, MaxOutputTokens: 16}},
		"embeddings": {pathEmbeddings, `{"input":["1234","1234"]}`, forebay.CallEstimate{PromptTokens: 2, MaxOutputTokens: -1}},
		"tokens":     {pathEmbeddings, `{"input":[[1,2,3],[4]]}`, forebay.CallEstimate{PromptTokens: 4, MaxOutputTokens: -1}},
		"tools":      {pathChat, `{"messages":[],"tools":[{"a":"12345"}]}`, forebay.CallEstimate{PromptTokens: 3}},
		"prompts":    {pathCompletions, `{"prompt":["1234","1234"],"max_tokens":5,"n":2}`, forebay.CallEstimate{PromptTokens: 2, MaxOutputTokens: 20}},
		"no JSON":    {pathChat, `12345678{`, forebay.CallEstimate{PromptTokens: 2}},
		"absurd":     {pathChat, `{"max_tokens":9e99,"n":9e99}`, forebay.CallEstimate{MaxOutputTokens: maxClaimedOutput * maxClaimedAnswers}},
	} {
		if got := EstimateForward(c.path, []byte(c.body)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
