//go:build unix

package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/server"
)

// Limits hold over single submits, bulk submits and intakes together, over processes and kills.
// What was acknowledged is carried out.
func TestLimitsUnderKills(t *testing.T) { underKills(t, testLimitsUnderKills) }

func testLimitsUnderKills(t *testing.T, o childOptions, processes int) {
	const most, sent = 20, 4
	ctx, limit := t.Context(), int64(most)
	o.Functions, o.Intake = []string{"count"}, map[string]server.Intake{"orders": {Task: "count"}}
	o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Limits: forebay.TenantLimits{WaitingJobs: &limit}}}
	running, clients := make([]*process, processes), make([]*client.Client, processes)
	connect := func(i int) {
		running[i] = launch(t, o)
		c, err := client.New(client.Options{BaseURL: running[i].mustListen(t)})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	kill := func(i int) {
		running[i].kill()
		connect(i)
	}
	for i := range running {
		connect(i)
	}
	last := processes - 1
	if _, err := clients[0].PauseTenant(ctx, forebay.DefaultTenant); err != nil {
		t.Fatal(err)
	}
	one := forebay.SubmitRequest{Task: "count", Input: json.RawMessage("1")}
	for result, err := range clients[0].SubmitBulk(ctx, slices.Values(slices.Repeat([]forebay.SubmitRequest{one}, most-5))) {
		if err != nil || result.Error != nil {
			t.Fatal(err, result.Error)
		}
	}
	kill(0)
	accepted := 0
	for i := range 10 { // at the processes in turn
		switch _, _, err := clients[i%processes].Submit(ctx, one); {
		case err == nil:
			accepted++
		case forebay.CodeOf(err) != forebay.CodeTenantLimit:
			t.Fatal(err)
		}
	}
	if accepted != 5 {
		t.Fatalf("%d of 5 more were accepted", accepted)
	}
	refused := 0
	for result, err := range clients[last].SubmitBulk(ctx, slices.Values(slices.Repeat([]forebay.SubmitRequest{one}, 3))) {
		if err != nil {
			t.Fatal(err)
		}
		if result.Error != nil && result.Error.Code == forebay.CodeTenantLimit {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d of 3 lines of a bulk submit were refused", refused)
	}

	// A kill while the intake has a lock costs a delivery, so one delivery would not be enough.
	if _, err := clients[0].PutMessageQueue(ctx, "orders", forebay.MessageQueueSettings{LockSeconds: 2, MaxDeliveryCount: 10}); err != nil {
		t.Fatal(err)
	}
	for i := range sent {
		if _, err := clients[last].Messages("orders").Send(ctx, forebay.NewMessage{MessageID: fmt.Sprint("m", i)}); err != nil {
			t.Fatal(err)
		}
	}
	used := func() map[forebay.LimitName]int64 {
		tenant, err := clients[0].Tenant(ctx, forebay.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
		all := map[forebay.LimitName]int64{}
		for _, l := range tenant.Limits {
			if l.Used != nil {
				all[l.Name] = *l.Used
			}
		}
		return all
	}
	if got := used(); got[forebay.LimitWaitingJobs] != most || got[forebay.LimitWaitingMessages] != sent {
		t.Fatalf("at the limit: %v", got)
	}
	kill(last)
	if got := used(); got[forebay.LimitWaitingJobs] != most || got[forebay.LimitWaitingMessages] != sent {
		t.Fatalf("after a kill: %v", got)
	}
	if _, err := clients[last].ResumeTenant(ctx, forebay.DefaultTenant); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error { // the intake pauses for up to 30 s
		if got := used(); got[forebay.LimitWaitingJobs] != 0 || got[forebay.LimitWaitingMessages] != 0 {
			return fmt.Errorf("left: %v", got)
		}
		return nil
	})
	succeeded := 0
	for job, err := range clients[0].List(ctx, forebay.JobFilter{}) {
		if err != nil || job.Status != forebay.StatusSucceeded {
			t.Fatal(job, err)
		}
		succeeded++
	}
	if succeeded != most+sent {
		t.Errorf("%d jobs succeeded, want %d", succeeded, most+sent)
	}
	// A count that took long is not repeated at once.
	eventually(t, time.Minute, func() error {
		_, _, err := clients[0].Submit(ctx, one)
		return err
	})
}

// Refusals by HTTP have a status, a code, the name of the limit and when to try again.
func TestRefusalsAtLimits(t *testing.T) {
	none, one := int64(0), int64(1)
	s := start(t, server.Options{Tenants: map[string]server.Tenant{"acme": {Limits: forebay.TenantLimits{KeyRequests: &none, Topics: &one, WaitingJobs: &one}}}})
	url := "http://" + s.Addr(t.Context()).String()
	local, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	key, err := local.CreateKey(t.Context(), "acme", forebay.Scopes, nil)
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path, body string) (*http.Response, forebay.Error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key.Key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p struct {
			Code   forebay.Code `json:"code"`
			Detail string       `json:"detail"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		return resp, forebay.Error{Code: p.Code, Message: p.Detail}
	}
	refused := func(resp *http.Response, e forebay.Error, code forebay.Code, name forebay.LimitName, again bool) {
		t.Helper()
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests || e.Code != code || !strings.Contains(e.Message, string(name)+" is reached") || again != (seconds > 0) {
			t.Errorf("%d %q, Retry-After %d: %+v", resp.StatusCode, resp.Header.Get("Retry-After"), seconds, e)
		}
	}
	do("POST", "/v1/tenants/acme/pause", "")
	for _, path := range []string{"/v1/topics/a", "/v1/topics/a"} { // the second changes the first
		if resp, e := do("PUT", path, "{}"); resp.StatusCode >= 300 {
			t.Fatal(e.Message)
		}
	}
	resp, e := do("PUT", "/v1/topics/b", "{}")
	refused(resp, e, forebay.CodeTenantLimit, forebay.LimitTopics, false)
	if resp, e := do("POST", "/v1/jobs", `{"task":"chat","input":{"messages":[{"role":"user","content":"x"}]}}`); resp.StatusCode != http.StatusAccepted {
		t.Fatal(e.Message)
	}
	resp, e = do("POST", "/v1/jobs", `{"task":"chat","input":{"messages":[{"role":"user","content":"x"}]}}`)
	refused(resp, e, forebay.CodeTenantLimit, forebay.LimitWaitingJobs, true)
	if resp, e := do("PUT", "/v1/tenants/acme", `{"limits":{"requests_per_second":1}}`); resp.StatusCode != http.StatusOK {
		t.Fatal(e.Message)
	}
	eventually(t, time.Minute, func() error { // the new rate allows two at once
		if resp, e = do("GET", "/v1/topics/a", ""); resp.StatusCode == http.StatusOK {
			return errNotYet
		}
		return nil
	})
	refused(resp, e, forebay.CodeRateLimited, forebay.LimitRequests, true)
}
