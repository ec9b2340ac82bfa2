package webhook

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// Another process is notified of a changed webhook at once, whatever its schema is called.
func TestWebhookChangesArePublished(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{"plain": "hooks", "long": strings.Repeat("x", 60), "quoted": `"Hooks"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(dbtest.Postgres(t))
			if err != nil {
				t.Fatal(err)
			}
			pg, err := pgconn.Connect(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			defer pg.Close(context.WithoutCancel(t.Context()))
			if _, err := pg.Exec(t.Context(), "CREATE SCHEMA "+schema).ReadAll(); err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Set("search_path", schema)
			u.RawQuery = query.Encode()
			var both [2]*stores
			for i := range both {
				if both[i], err = openStores(t.Context(), db.Options{URL: u.String()}); err != nil {
					t.Fatal(err)
				}
				defer both[i].DB.Close()
			}
			heard := make(chan struct{}, 100)
			both[1].Webhooks.OnWebhooksChanged(func() { heard <- struct{}{} })
			// A process that begins to listen reads the webhooks once anyway.
			for i := range 3 {
				w := Webhook{Tenant: 1, TenantName: "t", Name: fmt.Sprint("w", i), URL: "https://example.com/", Concurrency: 1, Secrets: []WebhookSecret{{Secret: "s"}}}
				if i == 0 {
					if w.Tenant, err = both[0].Queues.EnsureTenant(t.Context(), "t"); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := both[0].Webhooks.CreateWebhook(t.Context(), w, audit.Act{Action: "create-webhook"}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-heard:
				case <-time.After(20 * time.Second):
					t.Fatalf("nothing was heard of change %d", i+1)
				}
			}
		})
	}
}
