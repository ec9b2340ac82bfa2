package interop_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// delivered is a webhook as its receiver got it.
type delivered struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// OpenAI's SDKs accept the signature of webhooks about responses and batches, and know their
// events.
func TestOpenAISDKsUnwrapWebhooks(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "openai"))
	packages := toolchain.PythonPackages(t, filepath.Join("testdata", "openai"))
	got := make(chan delivered, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d := delivered{map[string]string{}, string(body)}
		for name := range r.Header {
			d.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		got <- d
	}))
	t.Cleanup(receiver.Close)
	base, key := startOpenAI(t, startMock(t, modules), func(o *server.Options) {
		o.Webhooks = server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}
	})
	c, err := client.New(client.Options{BaseURL: base, Key: forebay.Secret(key)})
	if err != nil {
		t.Fatal(err)
	}
	compiled := goProgram(t, "unwrap") // before anything is signed, for a signature is good for five minutes
	hook, err := c.CreateWebhook(t.Context(), forebay.NewWebhook{Name: "hook", WebhookSettings: forebay.WebhookSettings{
		URL: receiver.URL, EventTypes: forebay.ObjectEventTypes}})
	if err != nil {
		t.Fatal(err)
	}
	response := made(t, base+"/v1/responses", key, `{"model":"chat","input":"hello","background":true}`)
	file, err := c.UploadBatchFile(t.Context(), "lines.jsonl", strings.NewReader(
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":"hello"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	batch := made(t, base+"/v1/batches", key, `{"input_file_id":"`+file+`","endpoint":"/v1/chat/completions","completion_window":"24h"}`)
	unwrap := filepath.Join("testdata", "openai", "unwrap")
	script, err := os.ReadFile(unwrap + ".mjs")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(modules, filepath.Base(t.TempDir())+"-unwrap.mjs") // Node finds packages from where the script is
	if err := os.WriteFile(path, script, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	wanted := map[string]bool{"response.completed " + response: true, "batch.completed " + batch: true}
	for len(wanted) > 0 {
		var d delivered
		select {
		case d = <-got:
		case <-time.After(time.Minute):
			t.Fatalf("no webhook tells: %v", wanted)
		}
		input, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var said string
		for _, command := range [][]string{{"python3", unwrap + ".py"}, {toolchain.NodeFor(t, modules), path}, {compiled}} {
			program := exec.CommandContext(t.Context(), command[0], command[1:]...)
			program.Env = append(os.Environ(), "SECRET="+hook.Secret, "PYTHONPATH="+packages)
			program.Stdin = bytes.NewReader(input)
			out, err := program.CombinedOutput()
			event, accepted := strings.CutSuffix(string(out), "\nok\n")
			if err != nil || !accepted || !wanted[event] {
				t.Fatalf("%s: %v: %s", command[0], err, out)
			}
			said = event
		}
		delete(wanted, said)
	}
}

// made makes something of OpenAI's API, and returns its id.
func made(t *testing.T, url, key, body string) string {
	t.Helper()
	status, answer, err := posted(t.Context(), url, key, body)
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ ID string }
	if err := json.Unmarshal(answer, &object); err != nil || status != http.StatusOK || object.ID == "" {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	return object.ID
}
