package bridge

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

var update = flag.Bool("update", false, "write the golden files")

// Each file of testdata is a request, after it what the provider answers. Lines that begin with
// "data: " are a stream. The golden file has what the provider was asked for, the events and the
// response.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".txt") + ".golden"
			got := play(t, in, strings.Contains(file, "native"))
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("it is\n%s\nand was\n%s", got, want)
			}
		})
	}
}

const testID = "resp_00000000000000000000000001"

// play makes a call and returns what there is to see of it.
func play(t *testing.T, in []byte, native bool) []byte {
	t.Helper()
	body, answer, _ := bytes.Cut(in, []byte("\n---\n"))
	r, err := Parse(body, "")
	if err != nil {
		t.Fatal(err)
	}
	stream := bytes.HasPrefix(answer, []byte("data: "))
	x := NewExchange(r, testID, time.Unix(1700000000, 0), stream, State{})
	var out bytes.Buffer
	path, sent, err := x.Choose(Dialect{Responses: native, CompletionTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	out.WriteString("POST " + path + "\n")
	indented(t, &out, sent)
	tell := func(events []Event) {
		for _, e := range events {
			out.WriteString(e.Type + "\n  ")
			out.Write(e.Data)
			out.WriteString("\n")
		}
	}
	parts := [][]byte{answer}
	if stream {
		parts = nil
		for line := range bytes.Lines(answer) {
			parts = append(parts, append(bytes.TrimSpace(line), "\n\n"...))
		}
	}
	for _, part := range parts {
		events, err := x.Write(part)
		if err != nil {
			t.Fatal(err)
		}
		tell(events)
	}
	end, err := x.End(forebay.TokenUsage{InputTokens: 5, OutputTokens: 3}, time.Unix(1700000009, 0))
	if err != nil {
		out.WriteString("error: " + err.Error() + "\n")
		tell(x.Fail(Failure{CodeServerError, "it broke"}, true))
		return out.Bytes()
	}
	tell(end.Events)
	out.WriteString(end.Status + "\n")
	indented(t, &out, end.Object)
	return out.Bytes()
}

func indented(t *testing.T, out *bytes.Buffer, raw []byte) {
	t.Helper()
	if err := json.Indent(out, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	out.WriteString("\n")
}
