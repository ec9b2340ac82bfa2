package servicebus_test

import (
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

// dotnetScenario is a method of testdata/servicebus/dotnet, and what it says.
type dotnetScenario struct{ name, want string }

var dotnetScenarios = []dotnetScenario{
	{"send", "1,2,3,4 True MessageNotFound also,soon left="},
	{"settle", "1111 abandon:2:yes defer:Deferred:yes:MessageLockLost:MessageNotFound dead:broken:no use:yes left="},
	{"types", "id c application/x subject to reply rs pk 00:05:00 00-FF 1 True 22"},
	{"bodies", "1:Int32 x;2 7 True 3 gzip 09 2026 annotation True a;1|True 01|02-03"},
	{"peek", "1 2,3 True 2 123 True 0 TaskCanceledException after"},
	{"processor", "1,2,3,4,fails,fails ProcessMessageCallback:InvalidOperationException left="},
	{"purge", "2 3 left="},
	{"errors", "missing: MessagingEntityNotFound, MessagingEntityNotFound, MessagingEntityNotFound, MessagingEntityNotFound; disabled: MessagingEntityDisabled, MessagingEntityDisabled;" +
		" large: MessageSizeExceeded, MessageSizeExceeded; sessions: InvalidOperationException, InvalidOperationException, InvalidOperationException; never: InvalidOperationException, InvalidOperationException"},
	{"lockLost", "2 MessageLockLost MessageLockLost MessageLockLost MessageLockLost MessageLockLost"},
	{"sessions", "a1,a2 True half True SessionCannotBeLocked b:b1:b:True a2:2:True b1:b:broken ServiceTimeout transient"},
	{"sessionLost", "s SessionLockLost SessionLockLost SessionLockLost"},
	{"sessionProcessor", "s0:0:begun,s0:3:begun,s0:6:begun s1:1:begun,s1:4:begun,s1:7:begun s2:2:begun,s2:5:begun,s2:8:begun left="},
	{"transaction", "in=Active then in=Active in=Active then later=Scheduled,out1=Active,out2=Active MessageLockLost"},
	{"transactionSettles", "abandon=Active,defer=Deferred dead=Active abandon=Active,defer=Deferred abandon=Active TransactionInDoubtException MessageLockLost"},
	{"transactionSession", "True in False out SessionLockLost"},
	{"crossEntity", "2=Active moved=Active told=Active"},
	{"rules", "go=CorrelationRuleFilter: sys.CorrelationId = 'c' AND sys.Label = 'go' AND k = '5'/; red=SqlRuleFilter: color = 'red' AND n > 3/SqlRuleAction: SET tagged = 1; SET sys.Label = 'marked'" +
		" MessagingEntityAlreadyExists MessagingEntityNotFound ArgumentException red:marked:1 go:go: left="},
	{"manage", "made 00:00:45 7 True 2.00:00:00 a & <b> True 00:03:00 30.00:00:00 /plain Active 9 SendDisabled True 0 0 True;" +
		" made-topic n all 00:00:33 4 second bool=True:Boolean,double=1.5:Double,int=1:Int32,long=1099511627776:Int64,string=<&>:String,time=01/02/2026 03:04:05:DateTime" +
		" SqlRuleAction: SET y = 2 SqlRuleFilter: x = @p 7; made,made0,made-topic,made-topic1,all,all0,first,second Premium; True,True,True,True True,True,True,False False,False,False,False"},
	{"manageErrors", "MessagingEntityAlreadyExists MessagingEntityNotFound ArgumentException"},
}

// dotnetRun is what the program does with a server, which it may reach at another address than
// that of the connection string.
type dotnetRun struct {
	name, connection, at string
	scenarios            []dotnetScenario
}

// The SDK for .NET does what it does with Service Bus.
func TestServiceBusDotNet(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	program := toolchain.DotNet(t, filepath.Join("testdata", "servicebus", "dotnet"))
	var runs []dotnetRun
	for _, database := range []string{"sqlite", "postgresql"} {
		b := startServiceBus(t, on(newDatabase(t, database)))
		b.dotnetEntities(t)
		runs = append(runs, dotnetRun{database, b.connection, "", dotnetScenarios})
	}
	connection, certificate := startDotNetEncrypted(t)
	port := connection[strings.Index(connection, "localhost"):strings.Index(connection, ";")]
	refused := dotnetScenario{"wrongKey", "UnauthorizedAccessException UnauthorizedAccessException UnauthorizedAccessException UnauthorizedAccessException"}
	runs = append(runs,
		dotnetRun{"amqps", connection, "sb://" + port, append(someDotNet("send", "sessions", "crossEntity", "manage"), refused)},
		dotnetRun{"websocket", connection, "wss://" + port, someDotNet("settle", "processor", "transaction")})

	// One process does all, for to start one takes seconds.
	for _, r := range runs {
		var names []string
		for _, s := range r.scenarios {
			names = append(names, s.name)
		}
		program.Args = append(program.Args, r.connection, r.at, strings.Join(names, ","))
	}
	program.Env, program.Stderr = append(program.Env, "SSL_CERT_FILE="+certificate), t.Output()
	out, err := program.Output()
	if err != nil {
		t.Errorf("the program has failed: %v", err)
	}
	lines := strings.Split(string(out), "\n")
	for _, r := range runs {
		for _, s := range r.scenarios {
			t.Run(r.name+"/"+s.name, func(t *testing.T) {
				if want := s.name + ": " + s.want; len(lines) == 0 || lines[0] != want {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(lines[:min(1, len(lines))], ""), want)
				}
			})
			lines = lines[min(1, len(lines)):]
		}
	}
}

// someDotNet returns the scenarios of these names.
func someDotNet(names ...string) []dotnetScenario {
	return slices.DeleteFunc(slices.Clone(dotnetScenarios), func(s dotnetScenario) bool { return !slices.Contains(names, s.name) })
}

// dotnetEntities makes what the program uses.
func (b serviceBus) dotnetEntities(t *testing.T) {
	t.Helper()
	yes := true
	for _, name := range []string{"plain", "settle", "types", "bodies", "peek", "work", "purge", "errors", "tx", "txsettle", "from", "to"} {
		b.queue(t, name, forebay.MessageQueueSettings{LockSeconds: 300})
	}
	for _, name := range []string{"sessions", "sessionwork", "txsessions"} {
		b.queue(t, name, forebay.MessageQueueSettings{RequiresSession: &yes, LockSeconds: 300})
	}
	b.queue(t, "short", forebay.MessageQueueSettings{LockSeconds: 1, MaxDeliveryCount: 100})
	b.queue(t, "shortsessions", forebay.MessageQueueSettings{RequiresSession: &yes, LockSeconds: 1})
	b.queue(t, "closed", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityDisabled}})
	for _, name := range []string{"events", "tx-events"} {
		b.subscription(t, name, "all", forebay.SubscriptionSettings{})
	}
}

// startDotNetEncrypted starts a server with TLS and keys, and returns the file of its certificate.
func startDotNetEncrypted(t *testing.T) (connection, certFile string) {
	t.Helper()
	files, _ := certificate(t)
	database := "sqlite:" + dbtest.SQLite(t)
	keys, err := server.OpenKeys(t.Context(), database)
	must(t, keys, err)
	owner, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeSend, forebay.ScopeListen, forebay.ScopeManage}, nil, forebay.Budget{})
	must(t, owner, err)
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	queues := map[string]server.MessageQueue{"sessions": {Tenant: "acme", RequiresSession: ptr(true)}}
	for _, name := range []string{"plain", "settle", "work", "tx", "from", "to"} {
		queues[name] = server.MessageQueue{Tenant: "acme"}
	}
	s := servertest.UntilEnd(t, server.Options{Database: database, Listen: "127.0.0.1:0", TLS: files, ShutdownTimeout: time.Second, ServiceBus: server.ServiceBus{Listen: "127.0.0.1:0"}, MessageQueues: queues,
		Topics: map[string]server.Topic{"tx-events": {Tenant: "acme", Subscriptions: map[string]server.Subscription{"all": {}}}}})
	address, _ := s.ServiceBusAddr(t.Context())
	_, port, _ := strings.Cut(address.String(), ":")
	return "Endpoint=sb://localhost:" + port + ";SharedAccessKeyName=" + owner.ID + ";SharedAccessKey=" + owner.Key, files.CertFile
}
