package forebay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestSecretShowsNowhere(t *testing.T) {
	const value = "fb_hunter2"
	type options struct {
		Key  forebay.Secret
		Keys map[string]forebay.Secret
	}
	o := options{value, map[string]forebay.Secret{"authorization": value}}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("started", slog.Any("key", o.Key), slog.Any("options", o))
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", slog.Any("key", o.Key), slog.Any("options", o))
	inJSON, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(inJSON), o.Key.String(), fmt.Errorf("use %v: %w", o, fmt.Errorf("%s", o.Key)).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, o.Key), fmt.Sprintf(verb, o), fmt.Sprintf(verb, &o))
	}
	for _, s := range shown {
		if strings.Contains(s, "hunter2") || strings.Contains(strings.ToLower(s), fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("the secret shows in %s", s)
		}
	}
	if o.Key.Reveal() != value {
		t.Errorf("Reveal gives %q", o.Key.Reveal())
	}
}

func TestEmptySecretIsShownAsEmpty(t *testing.T) {
	if got := fmt.Sprint(forebay.Secret("")); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestSecretIsRead(t *testing.T) {
	var s forebay.Secret
	if err := json.Unmarshal([]byte(`"fb_hunter2"`), &s); err != nil || s.Reveal() != "fb_hunter2" {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
}
