package servicebus_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// scenario prepares a run of the program, with options of Java's.
func (p javaProgram) scenario(ctx context.Context, options []string, connection string, names ...string) *exec.Cmd {
	args := slices.Concat(options, toolchain.BriefJava, []string{"-cp", p.classPath, "Program", connection})
	return exec.CommandContext(ctx, "java", append(args, names...)...)
}

// want runs scenarios in one process, for to start one takes seconds, and checks what each prints.
func (p javaProgram) want(t *testing.T, options, env []string, connection string, scenarios ...javaScenario) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var names []string
	want := ""
	for _, s := range scenarios {
		names, want = append(names, s.name), want+s.name+": "+s.want+"\n"
	}
	program := p.scenario(ctx, options, connection, names...)
	program.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	program.Stderr = &said
	if got, err := program.Output(); err != nil || string(got) != want {
		t.Errorf("%v: got\n%s\nwant\n%s\n%s", err, got, want, said.String())
	}
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
	{"settleWithin", "abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon:1 defer:1 dead:1 abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon=ACTIVE,defer=DEFERRED,dead dead" +
		" abandon:1:1 true broken:no use"},
	{"refused", "amqp:transaction:rollback amqp:transaction:rollback amqp:transaction:unknown-id x=ACTIVE,y=ACTIVE"},
	{"settleDeferred", "complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED dead dead"},
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

// The SDK for Java does what it does with Service Bus. One process at a time does so: each keeps a
// processor busy.
func TestServiceBusJava(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	java := compileJava(t)
	for _, database := range []string{"sqlite", "postgresql"} {
		t.Run(database, func(t *testing.T) {
			b := startServiceBus(t, on(newDatabase(t, database)))
			b.javaEntities(t)
			java.want(t, nil, nil, b.connection, javaScenarios...)
		})
	}
	t.Run("refusals", func(t *testing.T) {
		java.want(t, nil, startRefusing(t).environment(), "", javaScenario{
			"refusals", "QUOTA_EXCEEDED SERVICE_BUSY UNAUTHORIZED UNAUTHORIZED UNAUTHORIZED deferred=GENERAL_ERROR scheduled=none argument=GENERAL_ERROR" +
				" none=MESSAGING_ENTITY_NOT_FOUND allowed=GENERAL_ERROR" +
				" rules=MESSAGING_ENTITY_ALREADY_EXISTS,MESSAGING_ENTITY_NOT_FOUND,GENERAL_ERROR,QUOTA_EXCEEDED,UNAUTHORIZED SESSION_LOCK_LOST",
		})
	})
	t.Run("death", func(t *testing.T) { testJavaDiesInATransaction(t, java) })
	t.Run("encrypted", func(t *testing.T) { testJavaEncrypted(t, java) })
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
func testJavaDiesInATransaction(t *testing.T, java javaProgram) {
	t.Helper()
	b := startGoBus(t, nil)
	for _, name := range []string{"open", "opento"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 10})
	}
	b.send("open", text("one"), text("two"))
	program := java.scenario(t.Context(), nil, b.connection, "leaveOpen")
	var said bytes.Buffer
	program.Stderr = &said
	out, err := program.StdoutPipe()
	must(t, out, err)
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killed := program.Process.Kill(); line != "open\n" || killed != nil {
		t.Fatalf("%q, %v, %v: %s", line, err, killed, said.String())
	}
	_ = program.Wait() // it was killed
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

// The SDK for Java trusts the certificates of its trust store, over AMQP and over WebSockets.
func testJavaEncrypted(t *testing.T, java javaProgram) {
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
	connection := "Endpoint=sb://localhost:" + port + ";SharedAccessKeyName=" + owner.ID + ";SharedAccessKey=" + owner.Key
	trust := []string{"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStorePassword=changeit"}
	t.Run("amqps", func(t *testing.T) {
		java.want(t, trust, nil, connection, append(some("send", "sessions", "crossEntity"), managementScenarios...)...)
	})
	t.Run("websocket", func(t *testing.T) {
		java.want(t, append(trust, "-Dwebsocket=https://localhost:"+port), nil, connection, some("send", "settle", "transaction")...)
	})
}
