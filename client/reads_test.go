package client

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

// What is read of other tenants is asked for as the server understands it.
func TestReadsOfTenants(t *testing.T) {
	nine := 9
	across := forebay.SetAsideAcross{AllTenants: true, Filter: forebay.SetAsideFilter{ErrorClass: forebay.ClassPermanent}}
	for want, do := range map[string]func(context.Context, *Client) error{
		"acme GET /v1/jobs/job_1/input": func(ctx context.Context, c *Client) error {
			input, err := c.ForTenant("acme").Input(ctx, "job_1", 0)
			if err == nil {
				err = input.Close()
			}
			return err
		},
		" GET /v1/jobs/job_1/input?limit=4096": func(ctx context.Context, c *Client) error {
			input, err := c.ForTenant("acme").ForTenant("").Input(ctx, "job_1", 4096)
			if err == nil {
				err = input.Close()
			}
			return err
		},
		" GET /v1/jobs?all_tenants=true&metadata=team%3Ared&priority=9&session_id=s&waiting_for=quota": func(ctx context.Context, c *Client) error {
			return second(c.ListPage(ctx, forebay.JobFilter{AllTenants: true, Metadata: map[string]string{"team": "red"}, Priority: &nine, SessionID: "s", WaitingFor: forebay.WaitQuota}))
		},
		" GET /v1/dead-letters/groups?all_tenants=true&error_class=permanent": func(ctx context.Context, c *Client) error {
			return second(c.DeadLetterGroups(ctx, across))
		},
		" GET /v1/quarantine/groups?queue=q": func(ctx context.Context, c *Client) error {
			return second(c.QuarantineGroups(ctx, forebay.SetAsideAcross{Queue: "q"}))
		},
		" GET /v1/dead-letters?all_tenants=true&error_class=permanent&limit=7": func(ctx context.Context, c *Client) error {
			for _, err := range c.AllDeadLetters(ctx, across, 7) {
				return err
			}
			return nil
		},
		"acme GET /v1/quarantine?all_tenants=true&error_class=permanent": func(ctx context.Context, c *Client) error {
			for _, err := range c.ForTenant("acme").AllQuarantined(ctx, across, 0) {
				return err
			}
			return nil
		},
	} {
		t.Run(want, func(t *testing.T) {
			var got string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Get(forebay.TenantHeader) + " " + r.Method + " " + r.URL.String()
				fmt.Fprint(w, "{}")
			})
			if err := do(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("sent %s", got)
			}
		})
	}
}
