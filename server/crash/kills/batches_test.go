//go:build unix

package kills_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// TestBatchesSurviveCrashes kills a server again and again while it works on a batch. Every line
// is answered once. It is called twice only if its call was under way when the server died.
func TestBatchesSurviveCrashes(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); newBatchCrash(t, servertest.DatabaseFile(t)).run() })
	t.Run("postgresql", func(t *testing.T) { t.Parallel(); newBatchCrash(t, dbtest.Postgres(t)).run() })
}

// batchCrash is one run.
type batchCrash struct {
	*testing.T
	options servertest.ProcessOptions
	model   *modelsim.TestServer

	mu    sync.Mutex
	calls map[string]int // by prompt
}

const crashConcurrency = 16

// linesVariable is how many lines the batch of the crash test has.
const linesVariable = "FOREBAY_CRASH_LINES"

func newBatchCrash(t *testing.T, at string) *batchCrash {
	c := &batchCrash{T: t, calls: map[string]int{}}
	c.model = modelsim.StartTest(func(call modelsim.Call) modelsim.Reply {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[call.Prompt]++
		return modelsim.Reply{Delay: time.Duration(rand.IntN(10)) * time.Millisecond, Text: call.Prompt}
	})
	t.Cleanup(c.model.Close)
	c.options = servertest.ProcessOptions{
		Database: at, Blob: "file://" + t.TempDir(), Endpoint: c.model.URL(), Shutdown: 100 * time.Millisecond,
		Queue: server.Queue{Concurrency: crashConcurrency, LockDuration: time.Second, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 20 * time.Millisecond, Max: 50 * time.Millisecond, Attempts: 100, Budget: 0.5}},
	}
	return c
}

func (c *batchCrash) run() {
	lines, kills := servertest.Size(2000, 400), servertest.Size(5, 3)
	if n, err := strconv.Atoi(os.Getenv(linesVariable)); err == nil {
		lines = n
	}
	contents := make([]string, lines)
	for i := range contents {
		contents[i] = fmt.Sprint("prompt ", i, " ", strings.Repeat("x", i%300))
	}
	p := servertest.Launch(c.T, c.options)
	id := c.start(p.MustListen(c.T), servertest.BatchLines(contents...))
	for round := range kills {
		// It dies early and late: while it validates, in the middle, and while it writes the output.
		enough := lines * (round * round) / (kills * kills)
		within, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		_ = c.model.Await(within, func(st modelsim.Stats) bool { return int(st.Calls) >= enough })
		cancel()
		p.Kill()
		p = servertest.Launch(c.T, c.options)
		p.MustListen(c.T)
	}
	url := p.MustListen(c.T)
	var b gjson.Result
	servertest.Eventually(c.T, 2*time.Minute, func() error {
		b = gjson.Parse(c.get(url + "/v1/batches/" + id))
		if b.Get("status").Str != "completed" {
			return fmt.Errorf("it is %s", b.Raw)
		}
		return nil
	})
	if n := b.Get("request_counts"); n.Get("total").Int() != int64(lines) || n.Get("completed").Int() != int64(lines) || n.Get("failed").Int() != 0 || b.Get("error_file_id").Exists() {
		c.Errorf("ended: %s", b.Raw)
	}
	n := 0
	for line := range strings.Lines(c.get(url + "/v1/files/" + b.Get("output_file_id").Str + "/content")) {
		o := gjson.Parse(line)
		if o.Get("custom_id").Str != fmt.Sprint("r", n) || !strings.HasPrefix(o.Get("response.body.choices.0.message.content").Str, fmt.Sprint("prompt ", n, " ")) {
			c.Fatalf("line %d of the output: %.300s", n, line)
		}
		n++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, calls := range c.calls {
		all += calls
	}
	if n != lines || len(c.calls) != lines || all > lines+kills*crashConcurrency {
		c.Errorf("%d lines of output, %d prompts called, %d calls of %d lines with %d kills", n, len(c.calls), all, lines, kills)
	}
}

// start uploads the lines and makes a batch of them.
func (c *batchCrash) start(url, lines string) (id string) {
	c.Helper()
	var content bytes.Buffer
	form := multipart.NewWriter(&content)
	part, err := form.CreateFormFile("file", "f")
	if err != nil {
		c.Fatal(err)
	}
	_, err = io.WriteString(part, lines)
	if err := errors.Join(err, form.WriteField("purpose", "batch"), form.Close()); err != nil {
		c.Fatal(err)
	}
	file := gjson.Parse(c.send(url+"/v1/files", form.FormDataContentType(), content.Bytes())).Get("id").Str
	body, err := json.Marshal(map[string]string{"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
	if err != nil {
		c.Fatal(err)
	}
	if id = gjson.Parse(c.send(url+"/v1/batches", "application/json", body)).Get("id").Str; id == "" {
		c.Fatal("no batch was made")
	}
	return id
}

func (c *batchCrash) send(url, contentType string, body []byte) string {
	c.Helper()
	resp, err := http.Post(url, contentType, bytes.NewReader(body))
	return c.read(resp, err)
}

func (c *batchCrash) get(url string) string {
	c.Helper()
	resp, err := http.Get(url)
	return c.read(resp, err)
}

func (c *batchCrash) read(resp *http.Response, err error) string {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.Fatalf("%d %s (%v)", resp.StatusCode, body, err)
	}
	return string(body)
}
