package interop_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// The SDK for Java, with the version that its pom.xml names, does what it does with Service Bus.
func TestServiceBusJava(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	toolchain.Need(t, toolchain.JDK())
	folder := filepath.Join("testdata", "servicebus", "java")
	jars := filepath.Join(toolchain.Installed(t, folder, "pom.xml", []string{"pom.xml"}, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"), "jars", "*")
	classes := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "javac", "-cp", jars, "-d", classes, filepath.Join(folder, "Program.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(t *testing.T, env []string, connection, scenario, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		program := exec.CommandContext(ctx, "java", "-cp", classes+string(os.PathListSeparator)+jars, "Program", connection, scenario)
		program.Env = append(os.Environ(), env...)
		var said bytes.Buffer
		program.Stderr = &said
		got, err := program.Output()
		if told := strings.TrimSpace(string(got)); err != nil || told != want {
			t.Errorf("%v: got\n%s\nwant\n%s\n%s", err, told, want, said.String())
		}
	}
	for _, database := range []string{"sqlite", "postgresql"} {
		t.Run(database, func(t *testing.T) {
			b := startServiceBus(t, on(newDatabase(t, database)))
			b.javaEntities(t)
			for _, scenario := range javaScenarios {
				t.Run(scenario.name, func(t *testing.T) { run(t, nil, b.connection, scenario.name, scenario.want) })
			}
		})
	}
	t.Run("refusals", func(t *testing.T) {
		run(t, startRefusing(t).environment(), "", "refusals", "QUOTA_EXCEEDED SERVICE_BUSY UNAUTHORIZED UNAUTHORIZED UNAUTHORIZED deferred=null SESSION_LOCK_LOST")
	})
}

// javaScenarios are what the program does, and what it says then.
var javaScenarios = []struct{ name, want string }{
	{"send", "1,2,3 never,a,b soon"},
	{"settle", "abandon:1:1:true defer dead:broken:no use left="},
	{"sessions", "a1,a2:half:true b:b1 SESSION_CANNOT_BE_LOCKED"},
	{"processors", "true [p1, p2, x, y]"},
	{"rules", "[label=CorrelationRuleFilter, red=SqlRuleFilter] red,go MESSAGING_ENTITY_ALREADY_EXISTS"},
	{"transaction", "in in in,later,out1,out2 later,out1,out2"},
	{"crossEntity", "1,2,3| 3|moved 3|moved ended=true"},
	{"errors", "MESSAGING_ENTITY_NOT_FOUND MESSAGE_SIZE_EXCEEDED MESSAGING_ENTITY_DISABLED MESSAGE_LOCK_LOST"},
}

// javaEntities makes what the program uses.
func (b serviceBus) javaEntities(t *testing.T) {
	t.Helper()
	yes := true
	for _, name := range []string{"plain", "settle", "work", "tx", "from", "to"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 300})
	}
	for _, name := range []string{"sessions", "sessionwork"} {
		b.queue(t, name, forebay.MessageQueueSettings{RequiresSession: &yes, LockSeconds: 300})
	}
	b.queue(t, "short", forebay.MessageQueueSettings{LockSeconds: 1})
	b.queue(t, "closed", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityDisabled}})
	b.subscription(t, "events", "all", forebay.SubscriptionSettings{})
}
