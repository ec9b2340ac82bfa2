package panics_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/panics"
)

func TestAPanicBecomesAnErrorAndIsLoggedWithoutItsValue(t *testing.T) {
	for name, f := range map[string]func() error{
		"a value of type string": func() error { panic("the caller's secret") },
		"nil pointer":            func() error { map[string]func(){}[""](); return nil },
		"index out of range":     func() error { _ = []int{}[len(name(t))-len(t.Name())]; return nil },
	} {
		var log bytes.Buffer
		err := panics.Run(slog.New(slog.NewTextHandler(&log, nil)), "a test", f)
		if !errors.Is(err, panics.ErrPanicked) {
			t.Errorf("%s: the error is %v", name, err)
		}
		got := log.String()
		if strings.Count(got, "panic contained") != 1 || !strings.Contains(got, name) || !strings.Contains(got, "panics_test.go") {
			t.Errorf("%s: the log has no panic with its stack: %s", name, got)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("%s: the log shows the value: %s", name, got)
		}
	}
}

func TestErrorsPass(t *testing.T) {
	want := errors.New("as it was")
	if err := panics.Run(slog.New(slog.DiscardHandler), "a test", func() error { return want }); !errors.Is(err, want) {
		t.Errorf("the error is %v", err)
	}
}

func name(t *testing.T) string { return t.Name() }
