package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// steering is what a model could say to steer a terminal: clear it, ring, and turn text round.
const steering = "a\u009b2J\u007f\u202egnp.exe\u2066\u061c \U0001F600"

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
		got := command{url: server.URL}.run(t.Context(), strings.Fields(args)...)
		if got.code != exitOK || strings.ContainsFunc(strings.NewReplacer("\n", "").Replace(got.out), steersTerminal) {
			t.Errorf("%s: exit code %d, error %q, output %q", args, got.code, got.err, got.out)
		}
		if !json.Valid([]byte(got.out)) || !strings.Contains(got.out, `a\u009b2J\u007f\u202egnp.exe\u2066\u061c 😀`) {
			t.Errorf("%s printed %s", args, got.out)
		}
	}
}

func TestPlainJSONInPieces(t *testing.T) {
	text, _ := json.Marshal([]string{steering, "日本語"})
	var out bytes.Buffer
	if _, err := io.Copy(plainJSON(&out), iotest.OneByteReader(bytes.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[0] != steering || got[1] != "日本語" || strings.ContainsFunc(out.String(), steersTerminal) {
		t.Errorf("%v: %s", err, out.Bytes())
	}
}
