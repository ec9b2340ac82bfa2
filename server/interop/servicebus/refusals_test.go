package servicebus_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// refusing is a server that refuses things, with connection strings by what they are for: OWNER
// may do everything, SENDS only send, LISTENS only receive. The key of WRONG is none. The tenant
// of FULL may have one message, and that of BUSY sends requests too fast.
type refusing map[string]string

func startRefusing(t *testing.T) refusing {
	t.Helper()
	database := newDatabase(t, "sqlite")
	keys, err := server.OpenKeys(t.Context(), database)
	must(t, keys, err)
	made := map[string]forebay.APIKey{}
	for name, of := range map[string]struct {
		tenant string
		scopes []forebay.Scope
	}{
		"OWNER":   {"acme", []forebay.Scope{forebay.ScopeManage}},
		"SENDS":   {"acme", []forebay.Scope{forebay.ScopeSend}},
		"LISTENS": {"acme", []forebay.Scope{forebay.ScopeListen}},
		"FULL":    {"full", []forebay.Scope{forebay.ScopeManage}},
		"BUSY":    {"busy", []forebay.Scope{forebay.ScopeManage}},
	} {
		made[name], err = keys.Create(t.Context(), of.tenant, of.scopes, nil, forebay.Budget{})
		must(t, made[name], err)
	}
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	wrong := made["OWNER"]
	wrong.Key += "x"
	made["WRONG"] = wrong
	yes, one := true, int64(1)
	b := startServiceBus(t, func(o *server.Options) {
		o.Database = database
		o.Tenants = map[string]server.Tenant{
			"full": {Limits: forebay.TenantLimits{WaitingMessages: &one}}, "busy": {Limits: forebay.TenantLimits{Requests: &one}},
		}
		o.MessageQueues = map[string]server.MessageQueue{
			"orders": {Tenant: "acme"}, "full": {Tenant: "full"}, "busy": {Tenant: "busy"},
			"sessions": {Tenant: "acme", RequiresSession: &yes, LockDuration: 5 * time.Second},
			"closed":   {Tenant: "acme", Status: string(forebay.EntityDisabled)},
		}
		o.Topics = crowdedTopics()
	})
	r := refusing{}
	for name, key := range made {
		r[name] = "Endpoint=sb://" + b.address + ";SharedAccessKeyName=" + key.ID + ";SharedAccessKey=" + key.Key + ";UseDevelopmentEmulator=true"
	}
	return r
}

// crowdedTopics are the topic events of the tenant acme. Of its subscriptions, crowded has as many
// rules as it may.
func crowdedTopics() map[string]server.Topic {
	rules := map[string]server.Rule{}
	for i := range forebay.MaxRules {
		rules[fmt.Sprint("r", i)] = server.Rule{BooleanFilter: ptr(true)}
	}
	return map[string]server.Topic{"events": {Tenant: "acme", Subscriptions: map[string]server.Subscription{"all": {}, "crowded": {Rules: rules}}}}
}

// environment is what programs read the connection strings from.
func (r refusing) environment() (env []string) {
	for name, connection := range r {
		env = append(env, name+"="+connection)
	}
	return env
}

// passes runs a program that uses the connection strings, each of whose checks prints a line.
func (r refusing) passes(t *testing.T, c *exec.Cmd, checks int) {
	t.Helper()
	c.Env = append(c.Env, r.environment()...)
	passes(t, c, serviceBus{}, checks)
}

// What the server refuses has the code or the condition that programs in Go branch on.
func TestServiceBusGoRefusals(t *testing.T) {
	t.Parallel()
	refusing := startRefusing(t)
	as := func(name string) goBus {
		b := serviceBus{connection: refusing[name]}
		return goBus{serviceBus: b, Client: b.goClient(t), t: t}
	}
	ctx := within(t)

	full := as("FULL").sender("full")
	if err := untilError(func() error { return full.SendMessage(ctx, text("x"), nil) }); condition(err) != amqp.ErrCondResourceLimitExceeded {
		t.Errorf("a full tenant: %v", err)
	}
	busy := as("BUSY").receiver("busy", nil)
	err := untilError(func() error { _, err := busy.PeekMessages(ctx, 1, nil); return err })
	if err == nil || !strings.Contains(err.Error(), "status code 503") { // the SDK hides its type
		t.Errorf("too many requests: %v", err)
	}

	if err := as("WRONG").sender("orders").SendMessage(ctx, text("x"), nil); code(err) != azservicebus.CodeUnauthorizedAccess {
		t.Errorf("a wrong key: %v", err)
	}
	if err := as("LISTENS").sender("orders").SendMessage(ctx, text("x"), nil); code(err) != azservicebus.CodeUnauthorizedAccess && condition(err) != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("sent by a key that only listens: %v", err)
	}
	if _, err := as("SENDS").receiver("orders", nil).ReceiveMessages(ctx, 1, nil); code(err) != azservicebus.CodeUnauthorizedAccess && condition(err) != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("received by a key that only sends: %v", err)
	}

	owner := as("OWNER")
	if _, err := owner.receiver("closed", nil).ReceiveMessages(ctx, 1, nil); condition(err) != "com.microsoft:entity-disabled" {
		t.Errorf("received from a disabled queue: %v", err)
	}
	if _, err := owner.receiver("orders", nil).ReceiveDeferredMessages(ctx, []int64{1 << 40}, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("a deferred message that is none: %v", err)
	}
	if err := owner.sender("orders").CancelScheduledMessages(ctx, []int64{1 << 40}, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("a scheduled message that is none: %v", err)
	}
	if _, err := owner.receiver("none", nil).PeekMessages(ctx, 1, nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("peeked at no queue: %v", err)
	}
	if err := owner.sender("orders").SendMessage(ctx, &azservicebus.Message{MessageID: ptr("\x01")}, nil); code(err) != azservicebus.CodeConnectionLost || !strings.Contains(err.Error(), "com.microsoft:argument-error") { // the SDK begins anew
		t.Errorf("an id that is not allowed: %v", err)
	}
	if err := owner.sender("sessions").SendMessage(ctx, text("x"), nil); condition(err) != amqp.ErrCondNotAllowed {
		t.Errorf("a message without a session: %v", err)
	}
	if err := owner.sender("orders/$deadletterqueue").SendMessage(ctx, text("x"), nil); condition(err) != amqp.ErrCondNotAllowed {
		t.Errorf("sent to a dead-letter subqueue: %v", err)
	}
	if _, err := owner.receiver("sessions", nil).ReceiveMessages(ctx, 1, nil); condition(err) != amqp.ErrCondNotAllowed {
		t.Errorf("received without a session: %v", err)
	}
	if _, err := owner.AcceptNextSessionForQueue(impatient{ctx}, "sessions", nil); code(err) != azservicebus.CodeTimeout {
		t.Errorf("no session is free: %v", err)
	}
}

// impatient is a context that tells a soon deadline, at which it does not end. The SDK has the
// server wait until then, so the answer comes from the server however slow the machine is.
type impatient struct{ context.Context }

func (impatient) Deadline() (time.Time, bool) { return time.Now().Add(time.Second), true }

// untilError calls until an error comes, at most a thousand times.
func untilError(call func() error) error {
	for range 1000 {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// What the server refuses makes the errors of Azure's SDK for JavaScript.
func TestServiceBusJavaScriptRefusals(t *testing.T) {
	t.Parallel()
	c := javaScript(t, "refusals.mjs")
	startRefusing(t).passes(t, c, 13)
}

// What the server refuses makes the exceptions of Azure's SDK for Python.
func TestServiceBusPythonRefusals(t *testing.T) {
	t.Parallel()
	c := python(t, "refusals.py")
	startRefusing(t).passes(t, c, 9)
}
