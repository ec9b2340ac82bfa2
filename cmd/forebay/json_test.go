package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/forebayhq/forebay/internal/command"
)

// steering is what a model could say to steer a terminal: clear it, ring, and turn text round.
const steering = "a\u009b2J\u007f\u202egnp.exe\u2066\u061c \U0001F600"

// steers reports whether a terminal may act on the character.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

func TestJSONOutputSteersNoTerminal(t *testing.T) {
	result, _ := json.Marshal(map[string]string{steering: steering})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/result"):
			w.Write(result)
		case r.URL.Path == "/v1/jobs" && r.Method == http.MethodGet:
			w.Write([]byte(`{"items":[{"id":"job_1","result":` + string(result) + `}]}`))
		default:
			w.Write([]byte(`{"id":"job_1","status":"succeeded","result":` + string(result) + `}`))
		}
	}))
	defer server.Close()
	for _, args := range []string{"jobs result job_1", "jobs get job_1 -o json", "jobs get job_1 -o jsonl", "jobs list -o json", "jobs list -o jsonl", "submit chat --input hi --wait"} {
		got := commandLine{url: server.URL}.run(t.Context(), strings.Fields(args)...)
		if got.code != command.ExitOK || strings.ContainsFunc(strings.NewReplacer("\n", "").Replace(got.out), steers) {
			t.Errorf("%s: exit code %d, error %q, output %q", args, got.code, got.err, got.out)
		}
		if !json.Valid([]byte(got.out)) || !strings.Contains(got.out, `a\u009b2J\u007f\u202egnp.exe\u2066\u061c 😀`) {
			t.Errorf("%s printed %s", args, got.out)
		}
	}
}
