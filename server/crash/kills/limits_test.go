//go:build unix

package kills_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Limits hold over single submits, bulk submits and intakes together, over processes and kills.
// What was acknowledged is carried out.
func TestLimitsUnderKills(t *testing.T) { underKills(t, testLimitsUnderKills) }

func testLimitsUnderKills(t *testing.T, o servertest.ProcessOptions, processes int) {
	const most, sent = 20, 4
	ctx, limit := t.Context(), int64(most)
	o.Functions, o.Intake = []string{"count"}, map[string]server.Intake{"orders": {Task: "count"}}
	o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Limits: forebay.TenantLimits{WaitingJobs: &limit}}}
	running, clients := make([]*servertest.Process, processes), make([]*client.Client, processes)
	connect := func(i int) {
		running[i] = servertest.Launch(t, o)
		c, err := client.New(client.Options{BaseURL: running[i].MustListen(t)})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	kill := func(i int) {
		running[i].Kill()
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
	servertest.Eventually(t, 2*time.Minute, func() error { // the intake pauses for up to 30 s
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
	servertest.Eventually(t, time.Minute, func() error {
		_, _, err := clients[0].Submit(ctx, one)
		return err
	})
}
