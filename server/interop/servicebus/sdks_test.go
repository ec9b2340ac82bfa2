package servicebus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// sdkEntities makes the entities of a program of testdata/servicebus, whose names begin alike.
func (b serviceBus) sdkEntities(t *testing.T, prefix string) {
	t.Helper()
	yes := true
	b.queue(t, prefix, forebay.MessageQueueSettings{})
	b.queue(t, prefix+"-sessions", forebay.MessageQueueSettings{RequiresSession: &yes})
	b.queue(t, prefix+"-short", forebay.MessageQueueSettings{LockSeconds: 1})
	b.queue(t, prefix+"-closed", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityDisabled}})
	b.subscription(t, prefix+"-topic", "sub", forebay.SubscriptionSettings{})
}

// passes runs a program, each of whose checks prints a line.
func passes(t *testing.T, c *exec.Cmd, b serviceBus, checks int) {
	t.Helper()
	c.Env = append(c.Env, "CONNECTION_STRING="+b.connection)
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if n := strings.Count("\n"+string(out), "\nok "); err != nil || n != checks {
		t.Fatalf("%d of %d checks have passed, %v", n, checks, err)
	}
}

// Azure's SDK for JavaScript sends, receives, settles and manages.
func TestServiceBusJavaScript(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		c := javaScript(t, "sdk.mjs")
		b := startServiceBus(t, on(newDatabase(t, database)))
		b.sdkEntities(t, "js")
		passes(t, c, b, 10)
	})
}

// Azure's SDK for Python sends, receives, settles and manages.
func TestServiceBusPython(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		c := python(t, "sdk.py")
		b := startServiceBus(t, on(newDatabase(t, database)))
		b.sdkEntities(t, "py")
		for _, check := range []string{"send_and_complete", "batch", "settle_in_every_way", "schedule_cancel_and_peek", "iterate", "errors"} {
			b.queue(t, "py-"+check, forebay.MessageQueueSettings{})
		}
		passes(t, c, b, 8)
	})
}

// javaScript is a program of testdata/servicebus, beside the modules it uses.
func javaScript(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "servicebus"))
	script, err := os.ReadFile(filepath.Join("testdata", "servicebus", name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(modules, "*.mjs") // where it finds the modules
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if _, err := f.Write(script); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), f.Name())
	c.Env = os.Environ()
	return c
}

// python is a program of testdata/servicebus.
func python(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	source := filepath.Join("testdata", "servicebus")
	packages := toolchain.PythonPackages(t, source)
	c := exec.CommandContext(t.Context(), "python3", filepath.Join(source, name))
	c.Env = append(os.Environ(), "PYTHONPATH="+packages)
	return c
}
