package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/schema/schematest"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// What clients of the old server know of live_29.sql. Jobs have their inputs as idempotency keys.
const (
	oldKey          = "fb_0azh63ttkm26nxd10a4nm5nrsgntepty"
	oldMailLock     = "AAAAAAAAAC1WFNtDSsu_Sw"
	oldMailDeferred = 46
	oldMailTimed    = 48
	oldSession      = "AAAAAAAAAAEC0s7QNg020A"
	oldSessionLock  = "AAAAAAAAADIg1j9nY3imIQ"
	oldSpending     = "job_06h1ay4bm3tc6xth5q0rdqjrx4"
	oldBroke        = "job_06h1ay4c0q444hxskbwbzryxzr"
)

// oldPayloads are the documents in the old server's blob storage, by their keys.
var oldPayloads = map[string]string{
	"t/2/rev_06h1ay4ag57gxvv6pnd1kvxrsc/content": "# Lease\n\nThe harbour board pays for repairs of the breakwater.\n",
	"t/2/rev_06h1ay4arhhdpr0rr0nbkgwsf8/content": "# Lease\n\nThe tenant pays for lanterns.\n",
}

// olderDatabases make a database of the oldest schema with these rows.
var olderDatabases = map[string]func(t *testing.T, rows string) string{
	"sqlite": func(t *testing.T, rows string) string {
		path := filepath.Join(t.TempDir(), "forebay.db")
		schematest.SQLite(t, path, rows)
		return "sqlite:" + path
	},
	"postgresql": func(t *testing.T, rows string) string {
		url := pgtest.Database(t)
		schematest.PostgreSQL(t, url, rows)
		return url
	},
}

// upgraded is a server on a database that one of the oldest schema left behind, in the middle of
// everything that it does.
type upgraded struct {
	server *server.Server
	*client.Client
	hooks *hookReceiver
}

// upgradeOptions have the names of the old server's queues, tasks, activities and deployments.
// What hung or failed there ends well.
func upgradeOptions(database, blobs string) server.Options {
	var functions []forebay.Task
	for _, name := range []string{"echo", "hang", "limited", "stubborn", "flaky", "broken"} {
		task := echo
		task.Name = name
		if name == "limited" {
			task.Endpoint, task.Concurrency = name, 2
		}
		functions = append(functions, task)
	}
	says := func(text string) func(context.Context, string) (string, error) {
		return func(_ context.Context, in string) (string, error) { return in + " " + text, nil }
	}
	book, confirm := server.NewActivity("book", says("booked again")), server.NewActivity("confirm", says("confirmed"))
	unsteady := server.NewActivity("unsteady", says("steady")).WithRetry(forebay.RetryPolicy{MaxAttempts: 3, First: 3 * time.Second, Coefficient: 1})
	trip := server.NewOrchestrator("trip", func(o *server.Orchestration, city string) (string, error) {
		booked, err := book.Call(o, city)
		if err != nil {
			return "", err
		}
		pending := confirm.Start(o, booked)
		o.SetStatus("waits for the payment")
		paid, err := server.WaitForEvent[int](o, "paid", time.Hour)
		if err != nil {
			return "", err
		}
		confirmed, err := pending.Await()
		return fmt.Sprintf("%s for %d", confirmed, paid), err
	})
	nap := server.NewOrchestrator("nap", func(o *server.Orchestration, _ string) (string, error) {
		return "awake", o.Sleep(4 * time.Second)
	})
	caller := server.NewOrchestrator("caller", func(o *server.Orchestration, in string) (string, error) {
		return server.CallTask[string](o, "echo", in, server.TaskOptions{Queue: "later"})
	})
	retrying := server.NewOrchestrator("retrying", unsteady.Call)
	waiting := server.NewOrchestrator("waiting", func(o *server.Orchestration, _ string) (string, error) {
		return server.WaitForEvent[string](o, "go", -1)
	})
	budget := int64(1000)
	simulated := func(name string) server.Deployment {
		return server.Deployment{Name: name, Provider: server.ProviderSim, TokensPerMinute: 100_000}
	}
	return server.Options{
		Database: database, Blob: blobs, Functions: functions,
		Durable:     []server.DurableFunction{book, confirm, unsteady, trip, nap, caller, retrying, waiting},
		Queues:      map[string]server.Queue{forebay.DefaultQueue: {}, "later": {}},
		Deployments: []server.Deployment{simulated("good"), simulated("stuck")},
		Models: map[string]server.Model{
			server.ModelChat: server.InOrder("good"), server.ModelEmbedding: server.InOrder("good"), "stuck": server.InOrder("stuck"),
		},
		Tasks:    map[string]server.TaskOption{"slow": {Extends: "chat", Model: "stuck", MaxOutputTokens: 500}},
		Tenants:  map[string]server.Tenant{"metered": {Budget: server.Budget{DailyTokens: &budget}}, forebay.DefaultTenant: {Concurrency: 50}},
		Webhooks: server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.1"}},
	}
}

// hookReceiver receives what webhooks send.
type hookReceiver struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]string // the event's type, by the webhook's path
}

func startHooks(t *testing.T) *hookReceiver {
	h := &hookReceiver{got: map[string]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ Type string }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got[r.URL.Path] = event.Type
	}))
	t.Cleanup(h.Close)
	return h
}

// rowsBefore are the rows of a server that was killed a minute ago: locks of jobs have ended, and
// those of messages have not. Its webhooks go to the receiver.
func rowsBefore(hooks *hookReceiver) string {
	return strings.ReplaceAll(schematest.Live(time.Now().Add(-time.Minute)), "http://127.0.0.1:1", hooks.URL)
}

// A server goes on with whatever a server of the oldest schema was doing when it was killed.
func TestUpgradeOfLiveData(t *testing.T) {
	t.Parallel()
	for kind, older := range olderDatabases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			hooks := startHooks(t)
			goesOn(t, older(t, rowsBefore(hooks)), filepath.Join(t.TempDir(), "blobs"), hooks)
		})
	}
}

// goesOn starts a server on the old server's rows and finishes all that they say.
func goesOn(t *testing.T, database, blobs string, hooks *hookReceiver) {
	t.Helper()
	s := servertest.Start(t, upgradeOptions(database, blobs))
	c, err := client.New(client.Options{BaseURL: servertest.Over(t, s).URL, Key: oldKey})
	if err != nil {
		t.Fatal(err)
	}
	u := upgraded{s, c, hooks}
	if err := c.ResumeQueue(t.Context(), "later"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"jobs that were over", u.jobsOver}, {"jobs that were under way", u.jobsUnderWay}, {"jobs of sessions", u.jobSessions}, {"budgets", u.budgets},
		{"messages", u.messages}, {"sessions", u.sessions}, {"topics", u.topics}, {"orchestrations", u.orchestrations},
		{"documents", u.documents}, {"webhooks", u.webhooks}, {"audit", u.audit},
	} {
		t.Run(part.name, part.test)
	}
}

// job returns the job that was submitted to the old server with this input.
func (u upgraded) job(t *testing.T, task, input string, more ...func(*forebay.SubmitRequest)) string {
	t.Helper()
	req := forebay.SubmitRequest{Task: task, Input: jsonText(input), IdempotencyKey: input}
	for _, change := range more {
		change(&req)
	}
	job, existing, err := u.Submit(t.Context(), req)
	if err != nil || !existing {
		t.Fatalf("%s is not known by its idempotency key: %v", input, err)
	}
	return job.ID
}

// olderBackup makes the folder that a backup of these rows by the old program was. contents are
// the payloads, by their keys.
func olderBackup(t *testing.T, rows string, contents map[string]string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "backup")
	database := filepath.Join(folder, "forebay.db")
	mustDo(t, os.Mkdir(folder, 0o700))
	schematest.SQLite(t, database, rows)
	payloads, err := blob.Open(t.Context(), filepath.Join(folder, "payloads"))
	mustDo(t, err)
	var list strings.Builder
	for _, key := range slices.Sorted(maps.Keys(contents)) {
		content := contents[key]
		mustDo(t, payloads.Put(t.Context(), key, strings.NewReader(content), int64(len(content))))
		fmt.Fprintf(&list, "%x %d %s\n", sha256.Sum256([]byte(content)), len(content), key)
	}
	mustDo(t, payloads.Close())
	writeFile(t, filepath.Join(folder, "payloads.txt"), []byte(list.String()))
	file, err := os.ReadFile(database)
	mustDo(t, err)
	writeManifest(t, folder, server.Backup{
		Format: 1, Schema: schema.Oldest, TakenAt: time.Now(), DatabaseBytes: int64(len(file)), DatabaseSHA256: fmt.Sprintf("%x", sha256.Sum256(file)),
		Payloads: int64(len(contents)), PayloadsSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(list.String()))),
	})
	return folder
}

func writeManifest(t *testing.T, folder string, m server.Backup) {
	t.Helper()
	text, err := json.Marshal(m)
	mustDo(t, err)
	writeFile(t, filepath.Join(folder, "backup.json"), text)
}

// A backup of the oldest schema is brought up to date while it is restored, also when the first
// restore was interrupted. A server goes on with all of it.
func TestRestoreOfAnOlderBackup(t *testing.T) {
	t.Parallel()
	for kind, database := range map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "forebay.db") },
		"postgresql": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			hooks := startHooks(t)
			folder := olderBackup(t, rowsBefore(hooks), oldPayloads)
			if m, err := server.CheckBackup(t.Context(), folder, silent); err != nil || m.Schema != schema.Oldest {
				t.Fatalf("checked schema %d: %v", m.Schema, err)
			}
			to := server.Options{Database: database(t), Blob: filepath.Join(t.TempDir(), "blobs")}
			ctx, cut := context.WithCancel(t.Context())
			_, err := server.RestoreBackup(ctx, to, folder, func(p server.BackupProgress) {
				if p.What == "copying messages" {
					cut()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("the interrupted restore: %v", err)
			}
			if _, err := server.RestoreBackup(t.Context(), to, folder, silent); err != nil {
				t.Fatal(err)
			}
			goesOn(t, to.Database, to.Blob, hooks)
		})
	}
}

// A backup that this program cannot read is refused in one line, before anything is written.
func TestBackupOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	folder := olderBackup(t, "", nil)
	for version, want := range map[int64]string{
		schema.Latest() + 1: fmt.Sprintf("the backup was written by a newer Forebay (schema %d; this one knows %d); use that version or newer", schema.Latest()+1, schema.Latest()),
		schema.Oldest - 1:   fmt.Sprintf("the backup was written by a Forebay from before the first release (schema %d); this one knows %d and newer", schema.Oldest-1, schema.Oldest),
		0:                   "the backup holds no Forebay database",
	} {
		writeManifest(t, folder, server.Backup{Format: 1, Schema: version})
		to := server.Options{Database: "sqlite:" + filepath.Join(t.TempDir(), "forebay.db"), Blob: filepath.Join(t.TempDir(), "blobs")}
		_, restored := server.RestoreBackup(t.Context(), to, folder, silent)
		_, checked := server.CheckBackup(t.Context(), folder, silent)
		for _, err := range []error{restored, checked} {
			if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || err.Error() != want {
				t.Errorf("schema %d is refused with %v", version, err)
			}
		}
		if _, err := os.Stat(strings.TrimPrefix(to.Database, "sqlite:")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("schema %d: the database was touched: %v", version, err)
		}
	}
}

// Neither a copy nor a backup is made of a database of the oldest schema before it is brought up
// to date. Then it is copied to the other engine, and a server goes on there.
func TestCopyOfAnOlderDatabase(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return pgtest.Database(t) },
		"postgresql": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "forebay.db") },
	} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			hooks := startHooks(t)
			source, target, blobs := olderDatabases[from](t, rowsBefore(hooks)), to(t), filepath.Join(t.TempDir(), "blobs")
			_, copied := server.Copy(t.Context(), source, target, func(server.CopyProgress) {})
			_, saved := server.MakeBackup(t.Context(), server.Options{Database: source, Blob: blobs}, filepath.Join(t.TempDir(), "backup"), silent)
			for what, err := range map[string]error{"copy": copied, "backup": saved} {
				if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "bring it up to date with forebay migrate up") {
					t.Errorf("the %s is refused with %v", what, err)
				}
			}
			for database, want := range map[string]int64{source: schema.Oldest, target: 0} {
				if s, err := server.ReadSchema(t.Context(), database); err != nil || s.Database != want {
					t.Errorf("after the refusal the schema is %d, not %d: %v", s.Database, want, err)
				}
			}
			if before, err := server.Migrate(t.Context(), source); err != nil || before.Database != schema.Oldest {
				t.Fatalf("migrated from %d: %v", before.Database, err)
			}
			if _, err := server.Copy(t.Context(), source, target, func(server.CopyProgress) {}); err != nil {
				t.Fatal(err)
			}
			goesOn(t, target, blobs, hooks)
		})
	}
}
