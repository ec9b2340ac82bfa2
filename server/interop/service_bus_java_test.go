package interop_test

import (
	"bufio"
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
	compile := exec.CommandContext(t.Context(), "javac", "-cp", jars, "-d", classes, filepath.Join(folder, "Program.java"), filepath.Join(folder, "Transactions.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return javaProgram{classes + string(os.PathListSeparator) + jars}
}

// scenario prepares a run of the program, with options of Java's.
func (p javaProgram) scenario(ctx context.Context, connection, name string, options ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "java", append(options, "-cp", p.classPath, "Program", connection, name)...)
}

// want runs a scenario and checks the line that it prints.
func (p javaProgram) want(t *testing.T, connection, name, want string, options ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	program := p.scenario(ctx, connection, name, options...)
	var said bytes.Buffer
	program.Stderr = &said
	got, err := program.Output()
	if told := strings.TrimSpace(string(got)); err != nil || told != want {
		t.Errorf("%v: got\n%s\nwant\n%s\n%s", err, told, want, said.String())
	}
}

// javaScenarios have the line that each prints.
var javaScenarios = map[string]string{
	"send":        "1,2,3 never,a,b soon",
	"settle":      "abandon:1:1:true defer dead:broken:no use left=",
	"sessions":    "a1,a2:half:true b:b1 SESSION_CANNOT_BE_LOCKED",
	"processors":  "true [p1, p2, x, y]",
	"rules":       "[label=CorrelationRuleFilter, red=SqlRuleFilter] red,go MESSAGING_ENTITY_ALREADY_EXISTS",
	"transaction": "in in in,later,out1,out2 later,out1,out2",
	"crossEntity": "1,2,3| 3|moved 3|moved ended=true",
	"errors":      "MESSAGING_ENTITY_NOT_FOUND MESSAGE_SIZE_EXCEEDED MESSAGING_ENTITY_DISABLED MESSAGE_LOCK_LOST",
	"settleWithin": "abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon:1 defer:1 dead:1 abandon=ACTIVE,defer=ACTIVE,dead=ACTIVE abandon=ACTIVE,defer=DEFERRED,dead dead" +
		" abandon:1:1 true broken:no use",
	"refused":        "amqp:transaction:rollback amqp:transaction:rollback amqp:transaction:unknown-id x=ACTIVE,y=ACTIVE",
	"settleDeferred": "complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED complete=DEFERRED,dead=DEFERRED dead dead",
}

// The SDK for Java does what it does with Service Bus.
func TestServiceBusJava(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	java := compileJava(t)
	b := startServiceBus(t, nil)
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
	for name, want := range javaScenarios {
		t.Run(name, func(t *testing.T) { java.want(t, b.connection, name, want) })
	}
}

// A transaction of a client that dies comes to nothing: its messages are delivered again, and what
// it has sent is dropped.
func TestServiceBusJavaDiesInATransaction(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	java := compileJava(t)
	b := startGoBus(t)
	for _, name := range []string{"open", "opento"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 10})
	}
	b.send("open", text("one"), text("two"))
	program := java.scenario(t.Context(), b.connection, "leaveOpen")
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
func TestServiceBusJavaEncrypted(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	java := compileJava(t)
	files, _ := certificate(t)
	store := filepath.Join(t.TempDir(), "trust.p12")
	if out, err := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-file", files.CertFile, "-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
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
	s := run(t, server.Options{Database: database, Listen: "127.0.0.1:0", TLS: files, ShutdownTimeout: time.Second, ServiceBus: server.ServiceBus{Listen: "127.0.0.1:0"}, MessageQueues: queues})
	address, _ := s.ServiceBusAddr(t.Context())
	_, port, _ := strings.Cut(address.String(), ":")
	connection := "Endpoint=sb://localhost:" + port + ";SharedAccessKeyName=" + owner.ID + ";SharedAccessKey=" + owner.Key
	trust := []string{"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStorePassword=changeit"}
	for _, name := range []string{"send", "sessions", "crossEntity"} {
		t.Run("amqps "+name, func(t *testing.T) { java.want(t, connection, name, javaScenarios[name], trust...) })
	}
	for _, name := range []string{"send", "settle", "transaction"} {
		t.Run("websocket "+name, func(t *testing.T) {
			java.want(t, connection, name, javaScenarios[name], append(trust, "-Dwebsocket=https://localhost:"+port)...)
		})
	}
}
