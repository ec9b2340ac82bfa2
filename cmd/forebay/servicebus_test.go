package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command/servicebus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servicebus/atom"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/stores"
)

const emulatorConfig = `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",
  "Queues": [
    {"Name": "first", "Properties": {"ForwardTo": "second", "LockDuration": "PT45S", "MaxDeliveryCount": 3, "RequiresDuplicateDetection": false, "DuplicateDetectionHistoryTimeWindow": "PT20S",
      "ForwardDeadLetteredMessagesTo": "", "DefaultMessageTimeToLive": "PT1H", "Sharding": true}},
    {"Name": "second", "Properties": {"RequiresSession": true, "LockDuration": "soon"}},
    {"Name": "not valid", "Properties": {}},
    {"Name": "round", "Properties": {"ForwardTo": "about"}}, {"Name": "about", "Properties": {"ForwardTo": "round"}}
  ],
  "Topics": [{"Name": "topic.1", "Properties": {"RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT20S"}, "Subscriptions": [
    {"Name": "sub", "Properties": {"ForwardTo": "third"}, "Rules": [
      {"Name": "c", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"ContentType": "application/json", "MessageId": "m", "Properties": {"prop": "value", "n": 3}}}},
      {"Name": "s", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "sys.MessageId LIKE '%m%'"}, "Action": {"SqlExpression": "SET a = 'b'"}}}]},
    {"Name": "all", "Properties": {}}]}]
  }], "Logging": {"Type": "File"}}}`

func TestImportOfTheEmulatorsEntities(t *testing.T) {
	url, _, _ := startServer(t)
	run := func(want int, args ...string) (results []servicebus.Result, said string) {
		t.Helper()
		got := commandLine{url: url, in: strings.Replace(emulatorConfig, `"Name": "third"`, "", 1)}.run(t.Context(), append([]string{"servicebus", "import", "--emulator", "-", "-o", "json"}, args...)...)
		if got.code != want {
			t.Fatalf("exit code %d, want %d; %s%s", got.code, want, got.out, got.err)
		}
		if err := json.Unmarshal([]byte(got.out), &results); err != nil {
			t.Fatalf("%v: %s", err, got.out)
		}
		return results, got.out + got.err
	}
	find := func(results []servicebus.Result, name string) servicebus.Result {
		for _, r := range results {
			if r.Name == name {
				return r
			}
		}
		t.Fatalf("%s is missing in %+v", name, results)
		return servicebus.Result{}
	}
	planned, _ := run(0, "--dry-run")
	if r := find(planned, "first"); len(planned) != 8 || r.Action != servicebus.WouldMake || len(r.Notes) != 1 || r.Notes[0] != "Sharding is not kept" {
		t.Errorf("the plan is %+v", planned)
	}
	api := apiOf(t, url)
	if queues, err := api.MessageQueues(t.Context()); err != nil || len(queues) != 0 {
		t.Errorf("a dry run made %+v, %v", queues, err)
	}
	made, said := run(1)
	for _, name := range []string{"first", "second", "topic.1", "topic.1/subscriptions/all"} {
		if r := find(made, name); r.Action != servicebus.Made {
			t.Errorf("%+v", r)
		}
	}
	if r := find(made, "not valid"); r.Action != servicebus.Failed || !strings.Contains(said, "2 of 8 entities could not be made") {
		t.Errorf("%+v, %s", r, said)
	}
	if r := find(made, "topic.1/subscriptions/sub"); r.Action != servicebus.Failed || !strings.Contains(strings.Join(r.Notes, " "), "there is no such queue") {
		t.Errorf("%+v", r)
	}
	if r := find(made, "second"); !strings.Contains(strings.Join(r.Notes, " "), `LockDuration "soon" is no duration`) {
		t.Errorf("%+v", r)
	}
	if r := find(made, "round"); !strings.Contains(strings.Join(r.Notes, " "), "it leads back") {
		t.Errorf("%+v", r)
	}
	_, first, err := api.FindQueue(t.Context(), "first")
	if err != nil || first == nil || first.ForwardTo != "second" || first.LockSeconds != 45 || first.MaxDeliveryCount != 3 || *first.DefaultTTLSeconds != 3600 {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := api.PutMessageQueue(t.Context(), "third", forebay.MessageQueueSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.PutMessageQueue(t.Context(), "first", forebay.MessageQueueSettings{LockSeconds: 30, ForwardTo: "second"}); err != nil {
		t.Fatal(err)
	}
	again, _ := run(1)
	if r := find(again, "first"); r.Action != servicebus.Exists || !strings.Contains(strings.Join(r.Notes, " "), "lock_seconds is 30, not 45") {
		t.Errorf("%+v", r)
	}
	if r := find(again, "topic.1"); r.Action != servicebus.Exists || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	if r := find(again, "topic.1/subscriptions/sub"); r.Action != servicebus.Made {
		t.Errorf("%+v", r)
	}
	rules, err := api.Rules(t.Context(), "topic.1", "sub")
	if err != nil || len(rules) != 2 || rules[0].CorrelationFilter.MessageID != "m" || rules[0].CorrelationFilter.Properties["n"] != int64(3) || rules[1].SQLAction != "SET a = 'b'" {
		t.Errorf("%+v, %v", rules, err)
	}
}

func TestImportOfANamespace(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	ctx := t.Context()
	s, err := stores.Open(ctx, db.Options{Path: filepath.Join(t.TempDir(), "source.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	bus, apiKeys := messaging.New(messaging.Options{Store: s.Bus}), keys.NewService(s.Keys, nil)
	source := httptest.NewTLSServer(atom.New(atom.Options{Entities: atom.Messaging(bus),
		Authorizer: atom.Verified(auth.New(auth.Options{Keys: apiKeys, Logger: slog.New(slog.DiscardHandler)}), nil)}))
	t.Cleanup(func() {
		source.Close()
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	key, err := apiKeys.Create(ctx, "acme", []forebay.Scope{forebay.ScopeManage}, nil, forebay.Budget{}, "test")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	_, _, err = bus.Queues.Put(ctx, "acme", "target", forebay.MessageQueueSettings{RequiresSession: pointer(true), EntityChange: forebay.EntityChange{Status: forebay.EntitySendDisabled, UserMetadata: pointer("note")}})
	must(err)
	_, _, err = bus.Topics.Put(ctx, "acme", "events", forebay.TopicSettings{DetectsDuplicates: pointer(true), DuplicateWindowSeconds: 60})
	must(err)
	_, _, err = bus.Subscriptions.Put(ctx, "acme", "events", "audit", forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{ForwardDeadLettersTo: "target", LockSeconds: 20},
		Rules: []forebay.NewRule{{Name: "r", RuleSettings: forebay.RuleSettings{SQLFilter: "a = @a", SQLFilterParameters: forebay.Properties{"@a": int64(7)}}}}})
	must(err)
	for i := range 205 {
		_, _, err = bus.Queues.Put(ctx, "acme", "q"+string(rune('a'+i%26))+string(rune('a'+i/26)), forebay.MessageQueueSettings{})
		must(err)
	}

	url, _, _ := startServer(t)
	trust := filepath.Join(t.TempDir(), "ca.pem")
	must(os.WriteFile(trust, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: source.Certificate().Raw}), 0o600))
	if _, err := x509.ParseCertificate(source.Certificate().Raw); err != nil {
		t.Fatal(err)
	}
	line := commandLine{url: url, environ: []string{"SERVICEBUS_CONNECTION_STRING=Endpoint=sb://" + strings.TrimPrefix(source.URL, "https://") + "/;SharedAccessKeyName=" + key.ID + ";SharedAccessKey=" + key.Key}}
	got := line.run(ctx, "servicebus", "import", "--source-ca", trust)
	if got.code != 0 || !strings.Contains(got.out, "208 made") {
		t.Fatalf("exit code %d; %s%s", got.code, got.out, got.err)
	}
	api := apiOf(t, url)
	_, target, err := api.FindQueue(ctx, "target")
	if err != nil || target == nil || !target.RequiresSession || target.Status != forebay.EntitySendDisabled || target.UserMetadata != "note" {
		t.Errorf("%+v, %v", target, err)
	}
	audit, err := api.Subscription(ctx, "events", "audit")
	if err != nil || audit.ForwardDeadLettersTo != "target" || audit.LockSeconds != 20 {
		t.Errorf("%+v, %v", audit, err)
	}
	rules, err := api.Rules(ctx, "events", "audit")
	if err != nil || len(rules) != 1 || rules[0].SQLFilterParameters["@a"] != int64(7) {
		t.Errorf("%+v, %v", rules, err)
	}
	got = line.run(ctx, "servicebus", "import", "--source-ca", trust)
	if got.code != 0 || !strings.Contains(got.out, "208 there already") || strings.Contains(got.out, ", not ") {
		t.Errorf("exit code %d; %.3000s%s", got.code, got.out, got.err)
	}
	line.environ[0] += "x"
	if got = line.run(ctx, "servicebus", "import", "--source-ca", trust); got.code == 0 || strings.Contains(got.err, key.Key) {
		t.Errorf("a wrong key: exit code %d, %s", got.code, got.err)
	}
}

func apiOf(t *testing.T, url string) *client.Client {
	t.Helper()
	api, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	return api
}
