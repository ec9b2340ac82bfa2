package server_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/server"
)

// Every option of the configuration file stands in its documentation.
func TestEveryOptionIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range optionKeys(reflect.TypeFor[server.Options]()) {
		if !strings.Contains(string(b), key) {
			t.Errorf("docs/configuration.md does not mention %s", key)
		}
	}
}

func optionKeys(t reflect.Type) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		field := t.Field(i)
		key := field.Tag.Get("koanf")
		if key == "-" || key == "" {
			continue
		}
		keys = append(keys, key)
		keys = append(keys, optionKeys(field.Type)...)
	}
	return keys
}

func TestIntakeOptions(t *testing.T) {
	for _, c := range []struct {
		in   server.Intake
		want string
	}{
		{server.Intake{Task: "summarize"}, ""},
		{server.Intake{From: "events/subscriptions/large", Tenant: "acme", Queue: "acme"}, ""},
		{server.Intake{Task: "none"}, "intake.orders.task"},
		{server.Intake{Queue: "none"}, "intake.orders.queue"},
		{server.Intake{Queue: "acme"}, "intake.orders.queue"},
		{server.Intake{From: "orders/$deadletterqueue"}, "intake.orders.from"},
		{server.Intake{From: "acme"}, "intake.orders.from"},
		{server.Intake{From: "other"}, "intake.other.from"},
		{server.Intake{Tenant: "a/b"}, "intake.orders.tenant"},
	} {
		o := server.Options{Intake: map[string]server.Intake{"orders": c.in, "other": {}}, Queues: map[string]server.Queue{"acme": {Tenants: []string{"acme"}}}}
		err := o.WithDefaults().Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.in, err)
		}
	}
}
