package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/command"
)

func TestWorkflows(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good.yaml", "workflow: good\nsteps:\n  a: {task: minutes}\n  b: {task: chat, input: \"${steps.a.result.text}\"}\n")
	bad := write("bad.yaml", "workflow: bad\nsteps:\n  a: {task: chat, after: c}\n  b: {task: chat, input: \"${nothing}\"}\n")
	configuration := write("forebay.yaml", "tasks: {minutes: {prompt: \"Minutes of {{.Input}}\"}}\nworkflows: ["+good+"]\n")
	broken := write("broken.yaml", "workflows: ["+bad+"]\n")
	places := []string{"forebay: " + bad + ":4:29: unknown name nothing"}
	for _, c := range []struct {
		args []string
		code int
		out  []string
		err  []string
	}{
		{[]string{"check"}, command.ExitUsage, nil, []string{"FILE is missing"}},
		{[]string{"check", "--config", configuration, good}, command.ExitOK, []string{good + ": the workflow good is valid"}, nil},
		{[]string{"check", good}, command.ExitConfiguration, nil, []string{good + ":3:13: there is no task minutes"}},
		{[]string{"check", "--config", configuration, good, bad}, command.ExitConfiguration, []string{"good is valid"}, places},
		{[]string{"check", filepath.Join(dir, "missing.yaml")}, command.ExitConfiguration, nil, []string{"missing.yaml cannot be read: no such file"}},
		{[]string{"list", "--config", configuration}, command.ExitOK, []string{"analyze-document", "built in", "good", "minutes, chat", good}, nil},
		{[]string{"list", "--config", configuration, "-o", "jsonl"}, command.ExitOK, []string{`"name":"good"`, `"steps":["a","b"]`}, nil},
		{[]string{"list", "--config", broken}, command.ExitConfiguration, nil, []string{"workflows[0]: " + bad + ":4:29: unknown name nothing"}},
	} {
		got := commandLine{}.run(t.Context(), append([]string{"workflows"}, c.args...)...)
		if got.code != c.code {
			t.Errorf("%s: exit code %d", c.args, got.code)
		}
		for _, want := range c.out {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s prints %q, want %q", c.args, got.out, want)
			}
		}
		for _, want := range c.err {
			if !strings.Contains(got.err, want) {
				t.Errorf("%s says %q, want %q", c.args, got.err, want)
			}
		}
	}
}
