package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestUnforeseenErrorsAreFailures(t *testing.T) {
	var out bytes.Buffer
	a := &App{Err: &out, running: true}
	if code := a.report(t.Context(), errors.New("odd\nthing")); code != ExitFailed || out.String() != "forebay: odd; thing\n" {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}

func TestPlainJSONInPieces(t *testing.T) {
	const steering = "a\u009b2J\u007f\u202egnp.exe\u2066\u061c \U0001F600"
	text, _ := json.Marshal([]string{steering, "日本語"})
	var out bytes.Buffer
	if _, err := io.Copy(PlainJSON(&out), iotest.OneByteReader(bytes.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[0] != steering || got[1] != "日本語" || strings.ContainsFunc(out.String(), steersTerminal) {
		t.Errorf("%v: %s", err, out.Bytes())
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 999 * time.Millisecond: "999ms", 59 * time.Second: "59s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		if got := Span(d); got != want {
			t.Errorf("Span(%s) is %s, want %s", d, got, want)
		}
	}
}
