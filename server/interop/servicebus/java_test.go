package servicebus_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// javaProgram is the compiled program of testdata/servicebus/java.
type javaProgram struct{ classPath string }

// compileJava compiles it against the SDK for Java, with the version that its pom.xml names.
func compileJava(t *testing.T) javaProgram {
	t.Helper()
	toolchain.Need(t, toolchain.JDK())
	folder := filepath.Join("testdata", "servicebus", "java")
	jars := filepath.Join(toolchain.Installed(t, folder, "pom.xml", []string{"pom.xml"}, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"), "jars", "*")
	classes := t.TempDir()
	compile := exec.CommandContext(t.Context(), "javac", "-J-XX:TieredStopAtLevel=1", "-cp", jars, "-d", classes, filepath.Join(folder, "Program.java"), filepath.Join(folder, "Transactions.java"), filepath.Join(folder, "Administration.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return javaProgram{classes + string(os.PathListSeparator) + jars}
}

// quiet has the SDK log only what is wrong. Whatever it does, it logs tens of thousands of lines.
const quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

// javaRun is what the program does with a server, which it may reach by a web socket.
type javaRun struct {
	connection, webSocket string
	scenarios             []javaScenario
	got                   string
}

// check compares what the program has said with what it should.
func (r javaRun) check(t *testing.T) {
	t.Helper()
	want := ""
	for _, s := range r.scenarios {
		want += s.name + ": " + s.want + "\n"
	}
	if r.got != want {
		t.Errorf("got\n%s\nwant\n%s", r.got, want)
	}
}

// run does all runs in one process, for to start one takes seconds, and keeps a processor busy. It
// returns when the program has said all that it does, and what kills it.
func (p javaProgram) run(t *testing.T, options, env []string, runs ...*javaRun) (kill func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	args := slices.Concat(options, toolchain.BriefJava, []string{quiet, "-cp", p.classPath, "Program"})
	for _, r := range runs {
		var names []string
		for _, s := range r.scenarios {
			names = append(names, s.name)
		}
		args = append(args, r.connection, r.webSocket, strings.Join(names, ","))
	}
	program := exec.CommandContext(ctx, "java", args...)
	program.Env, program.Stderr = append(os.Environ(), env...), t.Output()
	out, err := program.StdoutPipe()
	must(t, out, err)
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceValue(func() error {
		killed := program.Process.Kill()
		_ = program.Wait() // it was killed
		return killed
	})
	t.Cleanup(func() { _ = end() })
	lines := bufio.NewReader(out)
	for _, r := range runs {
		for range r.scenarios {
			line, err := lines.ReadString('\n')
			if r.got += line; err != nil {
				t.Errorf("the program has ended early: %v", err)
				return end
			}
		}
	}
	return end
}

// javaScenario is what the program does, and what it says then.
type javaScenario struct{ name, want string }

// Those that wait come first, so that others work meanwhile.
var javaScenarios = []javaScenario{
	{"send", "1,2,3 never,a,b soon"},
	{"settleWithin", "abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon:1 defer:1 dead:1 abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon=ACTIVE,defer=DEFERRED,dead dead" +
		" abandon:1:1 true broken:no use"},
	{"settleDeferred", "complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED dead dead"},
	{"refused", "amqp:transaction:rollback amqp:transaction:rollback amqp:transaction:unknown-id x=ACTIVE,y=ACTIVE"},
	{"errors", "MESSAGING_ENTITY_NOT_FOUND MESSAGE_SIZE_EXCEEDED MESSAGING_ENTITY_DISABLED MESSAGE_LOCK_LOST"},
	{"settle", "abandon:1:1:true defer dead:broken:no use left="},
	{"sessions", "a1,a2:half:true b:b1 SESSION_CANNOT_BE_LOCKED"},
	{"processors", "true [p1, p2, x, y]"},
	{"rules", "[label=CorrelationRuleFilter, red=SqlRuleFilter] red,go MESSAGING_ENTITY_ALREADY_EXISTS"},
	{"transaction", "in in in,later,out1,out2 later,out1,out2"},
	{"crossEntity", "1,2,3| 3|moved 3|moved ended=true"},
}

// managementScenarios are those of the administration client, which needs TLS.
var managementScenarios = []javaScenario{
	{"manage", "PT45S true a & <b> 7 true $Default=TrueRuleFilter,label=CorrelationRuleFilter,red=SqlRuleFilter events,made-topic 0 1 Premium falsefalsefalse"},
	{"managementRefusals", "ResourceExistsException 409, ResourceNotFoundException 404, HttpResponseException 400, HttpResponseException 403, ClientAuthenticationException 401 all$Default"},
}

// some returns the scenarios of these names.
func some(names ...string) []javaScenario {
	return slices.DeleteFunc(slices.Clone(javaScenarios), func(s javaScenario) bool { return !slices.Contains(names, s.name) })
}

// The SDK for Java does what it does with Service Bus.
func TestServiceBusJava(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	java := compileJava(t)
	runs := map[string]*javaRun{}
	var all []*javaRun
	add := func(name string, r javaRun) {
		runs[name] = &r
		all = append(all, &r)
	}
	for _, database := range []string{"sqlite", "postgresql"} {
		b := startServiceBus(t, on(newDatabase(t, database)))
		b.javaEntities(t)
		add(database, javaRun{connection: b.connection, scenarios: javaScenarios})
	}
	add("refusals", javaRun{scenarios: []javaScenario{{
		"refusals", "QUOTA_EXCEEDED SERVICE_BUSY UNAUTHORIZED UNAUTHORIZED UNAUTHORIZED deferred=GENERAL_ERROR scheduled=none argument=GENERAL_ERROR" +
			" none=MESSAGING_ENTITY_NOT_FOUND allowed=GENERAL_ERROR" +
			" rules=MESSAGING_ENTITY_ALREADY_EXISTS,MESSAGING_ENTITY_NOT_FOUND,GENERAL_ERROR,QUOTA_EXCEEDED,UNAUTHORIZED SESSION_LOCK_LOST",
	}}})
	encrypted := startJavaEncrypted(t)
	add("amqps", javaRun{connection: encrypted.connection, scenarios: append(some("send", "sessions", "crossEntity"), managementScenarios...)})
	add("websocket", javaRun{connection: encrypted.connection, webSocket: encrypted.webSocket, scenarios: some("send", "settle", "transaction")})
	dying := startGoBus(t, nil)
	for _, name := range []string{"open", "opento"} {
		dying.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 10})
	}
	dying.send("open", text("one"), text("two"))
	add("death", javaRun{connection: dying.connection, scenarios: []javaScenario{{name: "leaveOpen"}}})

	kill := java.run(t, encrypted.trust, startRefusing(t).environment(), all...)
	for _, name := range []string{"sqlite", "postgresql", "refusals"} {
		t.Run(name, runs[name].check)
	}
	t.Run("death", func(t *testing.T) {
		if line, killed := runs["death"].got, kill(); line != "open\n" || killed != nil {
			t.Fatalf("%q, %v", line, killed)
		}
		testJavaDiesInATransaction(t, dying)
	})
	// The SDK for Java trusts the certificates of its trust store, over AMQP and over WebSockets.
	t.Run("encrypted", func(t *testing.T) {
		for _, name := range []string{"amqps", "websocket"} {
			t.Run(name, runs[name].check)
		}
	})
}

// javaEntities makes what the program uses.
func (b serviceBus) javaEntities(t *testing.T) {
	t.Helper()
	yes := true
	for _, name := range []string{"plain", "settle", "work", "tx", "from", "to", "within", "deferred"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 300})
	}
	for _, name := range []string{"sessions", "sessionwork"} {
		b.queue(t, name, forebay.MessageQueueSettings{RequiresSession: &yes, LockSeconds: 300})
	}
	b.queue(t, "short", forebay.MessageQueueSettings{LockSeconds: 1})
	for _, name := range []string{"short-lock", "short-deferred"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 10, MaxDeliveryCount: 100})
	}
	b.queue(t, "refusing", forebay.MessageQueueSettings{LockSeconds: 1, MaxMessageBytes: 1000, MaxDeliveryCount: 100})
	b.queue(t, "closed", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityDisabled}})
	b.subscription(t, "events", "all", forebay.SubscriptionSettings{})
}

// A transaction of a client that dies comes to nothing: its messages are delivered again, and what
// it has sent is dropped.
func testJavaDiesInATransaction(t *testing.T, b goBus) {
	t.Helper()
	b.t = t
	r := b.receiver("open", nil)
	for _, m := range b.receive(r, 2) { // once their locks have ended
		if m.DeliveryCount != 2 {
			t.Errorf("%s is delivered for the %d. time", m.Body, m.DeliveryCount)
		}
		if err := r.CompleteMessage(within(t), m, nil); err != nil {
			t.Error(err)
		}
	}
	_, q, err := b.FindQueue(t.Context(), "open")
	must(t, q, err)
	_, to, err := b.FindQueue(t.Context(), "opento")
	must(t, to, err)
	if q.Active+q.Locked+q.DeadLetter+to.Active+to.Locked > 0 {
		t.Errorf("%+v and %+v are left", q, to)
	}
}

// javaEncrypted is a server with TLS, and the options of Java's that have it trusted.
type javaEncrypted struct {
	connection, webSocket string
	trust                 []string
}

func startJavaEncrypted(t *testing.T) javaEncrypted {
	t.Helper()
	files, _ := certificate(t)
	store := filepath.Join(t.TempDir(), "trust.p12")
	if out, err := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-file", files.CertFile, "-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	database := "sqlite:" + dbtest.SQLite(t)
	keys, err := server.OpenKeys(t.Context(), database)
	must(t, keys, err)
	owner, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeSend, forebay.ScopeListen, forebay.ScopeManage, forebay.ScopeSubmit}, nil, forebay.Budget{})
	must(t, owner, err)
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	queues := map[string]server.MessageQueue{"sessions": {Tenant: "acme", RequiresSession: ptr(true)}}
	for _, name := range []string{"plain", "settle", "tx", "from", "to"} {
		queues[name] = server.MessageQueue{Tenant: "acme"}
	}
	s := servertest.UntilEnd(t, server.Options{Database: database, Listen: "127.0.0.1:0", TLS: files, ShutdownTimeout: time.Second, ServiceBus: server.ServiceBus{Listen: "127.0.0.1:0"}, MessageQueues: queues,
		Topics: crowdedTopics()})
	address, _ := s.ServiceBusAddr(t.Context())
	_, port, _ := strings.Cut(address.String(), ":")
	return javaEncrypted{
		connection: "Endpoint=sb://localhost:" + port + ";SharedAccessKeyName=" + owner.ID + ";SharedAccessKey=" + owner.Key, webSocket: "https://localhost:" + port,
		trust: []string{"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStorePassword=changeit"},
	}
}
