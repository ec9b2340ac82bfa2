package interop_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
	// One process does all that is wanted of it, for to start one takes seconds.
	run := func(t *testing.T, env []string, connection string, scenarios []javaScenario) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		args := []string{"-cp", classes + string(os.PathListSeparator) + jars, "Program", connection}
		want := ""
		for _, s := range scenarios {
			args, want = append(args, s.name), want+s.name+": "+s.want+"\n"
		}
		program := exec.CommandContext(ctx, "java", args...)
		program.Env = append(os.Environ(), env...)
		var said bytes.Buffer
		program.Stderr = &said
		if got, err := program.Output(); err != nil || string(got) != want {
			t.Errorf("%v: got\n%s\nwant\n%s\n%s", err, got, want, said.String())
		}
	}
	for _, database := range []string{"sqlite", "postgresql"} {
		t.Run(database, func(t *testing.T) {
			b := startServiceBus(t, on(newDatabase(t, database)))
			b.javaEntities(t)
			run(t, nil, b.connection, javaScenarios)
		})
	}
	t.Run("refusals", func(t *testing.T) {
		run(t, startRefusing(t).environment(), "", []javaScenario{
			{"refusals", "QUOTA_EXCEEDED SERVICE_BUSY UNAUTHORIZED UNAUTHORIZED UNAUTHORIZED deferred=GENERAL_ERROR SESSION_LOCK_LOST"},
		})
	})
}

// javaScenario is what the program does, and what it says then.
type javaScenario struct{ name, want string }

var javaScenarios = []javaScenario{
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
