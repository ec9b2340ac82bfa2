package db

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/turns"
	"github.com/jackc/pgx/v5"
)

// roleOn makes a role that may do nothing on a new database, and returns the URL with which it
// connects. In what admin runs, %[1]s is the role.
func roleOn(t *testing.T) (address *url.URL, admin func(format string)) {
	t.Helper()
	database := pgtest.Database(t)
	pg, err := pgx.Connect(t.Context(), database)
	mustDo(t, err)
	address, err = url.Parse(database)
	mustDo(t, err)
	name := "forebay_test_" + strings.ToLower(rand.Text())
	admin = func(format string) {
		t.Helper()
		_, err := pg.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf(format, name))
		mustDo(t, err)
	}
	admin("CREATE ROLE %[1]s LOGIN PASSWORD 'one'")
	t.Cleanup(func() {
		admin("DROP OWNED BY %[1]s; DROP ROLE %[1]s")
		pg.Close(context.WithoutCancel(t.Context()))
	})
	address.User = url.UserPassword(name, "one")
	return address, admin
}

// A password that changes while a process runs is read again from its file.
func TestPasswordFileIsReadAgain(t *testing.T) {
	t.Parallel()
	address, admin := roleOn(t)
	admin("CREATE SCHEMA forebay AUTHORIZATION %[1]s")
	file := filepath.Join(t.TempDir(), "passwords")
	keep := func(password string) { mustDo(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600)) }
	keep("one")
	address.User = url.User(address.User.Username())
	address.RawQuery += "&passfile=" + url.QueryEscape(file)
	s := serve(t, Options{URL: address.String()})
	storeOne(t, s)

	terminate := func() {
		admin("DO $$BEGIN PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '%[1]s'; END$$")
	}
	admin("ALTER ROLE %[1]s PASSWORD 'two'")
	terminate()
	_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(*Tx) (int, error) { return 0, nil })
	if forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), "refuses this user or password") {
		t.Errorf("with the old password: %v", err)
	}
	keep("two")
	terminate()
	storeOne(t, s)
	if all := names(t, s); len(all) != 2 {
		t.Errorf("%d rows", len(all))
	}
}

// Two tenants that read and search as much as they may have a process make all of its connections.
// For fewer there are reasons that can be read.
func TestConnectionsOfAProcess(t *testing.T) {
	t.Parallel()
	const most = 13 // as docs/postgresql.md says
	address, admin := roleOn(t)
	admin("CREATE SCHEMA forebay AUTHORIZATION %[1]s")
	admin(fmt.Sprintf("ALTER ROLE %%[1]s CONNECTION LIMIT %d", most))
	s := serve(t, Options{URL: address.String()})
	if _, err := s.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	reading, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2*maxReaders)
	hold := func(c driver.Conn) error {
		err := c.Prep("SELECT 1").Each(nil)
		reading <- struct{}{}
		<-goOn
		return err
	}
	for n := range 2 * maxReaders {
		tenant := turns.With(t.Context(), []string{"a", "b"}[n%2])
		read := s.Read
		if n >= maxReaders {
			read = s.Search
		}
		go func() { ended <- read(tenant, hold) }()
	}
	for range 2 * maxReaders {
		select {
		case <-reading:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	count := 0
	pg, err := pgx.Connect(t.Context(), pgtest.Server(t))
	mustDo(t, err)
	defer pg.Close(context.WithoutCancel(t.Context()))
	for start := time.Now(); count < most && time.Since(start) < 30*time.Second; { // those for news come by and by
		mustDo(t, pg.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity, pg_sleep(0.02) WHERE usename = $1", address.User.Username()).Scan(&count))
	}
	if count != most {
		t.Errorf("%d connections, want %d", count, most)
	}
	_, err = s.Place(t.Context())
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "has no connection left") || strings.Contains(err.Error(), "SQLSTATE") {
		t.Errorf("one more: %v", err)
	}
	close(goOn)
	for range 2 * maxReaders {
		mustDo(t, <-ended)
	}
}

// A user that does not own the tables works once it has been granted what it needs, and is told
// until then.
func TestUserWithoutOwnTables(t *testing.T) {
	t.Parallel()
	address, admin := roleOn(t)
	refused := func(want string) {
		t.Helper()
		s, err := Open(t.Context(), Options{URL: address.String(), Serve: true})
		if err == nil {
			s.Close()
		}
		if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("may not create or change Forebay's schema")
	server, err := url.Parse(pgtest.Server(t))
	mustDo(t, err)
	owner := *address
	owner.User = server.User
	made, err := Open(t.Context(), Options{URL: owner.String()})
	mustDo(t, err)
	mustDo(t, made.Close())
	for _, step := range []struct{ grant, want string }{
		{"", "may not use the schema forebay"},
		{"GRANT USAGE ON SCHEMA forebay TO %[1]s", "may not work on schema_version"},
		{"GRANT SELECT ON ALL TABLES IN SCHEMA forebay TO %[1]s", "may not work on "},
		{"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA forebay TO %[1]s", "_seq: grant"},
	} {
		if step.grant != "" {
			admin(step.grant)
		}
		refused(step.want)
	}
	admin("GRANT USAGE ON ALL SEQUENCES IN SCHEMA forebay TO %[1]s")
	s := serve(t, Options{URL: address.String()})
	storeOne(t, s)

	admin("REVOKE INSERT ON forebay.tenants FROM %[1]s")
	_, err = Transact(t.Context(), s.Writer, Op{Stage: StageSubmit}, insertNames("late", 1))
	if forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), "rights") {
		t.Errorf("without a right that it had: %v", err)
	}
}

// A process that gets too few connections says so.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	address, admin := roleOn(t)
	admin("CREATE SCHEMA forebay AUTHORIZATION %[1]s; ALTER ROLE %[1]s CONNECTION LIMIT 1")
	s, err := Open(t.Context(), Options{URL: address.String(), Serve: true})
	if err == nil {
		s.Close()
	}
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "no connection left") {
		t.Errorf("%v", err)
	}
}

// Commits of a role that is given synchronous_commit = off wait for the disk all the same. No
// process starts as that role.
func TestRoleWhoseCommitsDoNotWait(t *testing.T) {
	t.Parallel()
	address, admin := roleOn(t)
	admin("CREATE SCHEMA forebay AUTHORIZATION %[1]s")
	s := serve(t, Options{URL: address.String()})
	storeOne(t, s)
	admin("ALTER ROLE %[1]s SET synchronous_commit = off")
	admin("DO $$BEGIN PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '%[1]s'; END$$")
	setting, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(tx *Tx) (setting string, err error) {
		_, err = tx.Prep("SELECT current_setting('synchronous_commit')").One(func(r driver.Row) { setting = r.Text(0) })
		return setting, err
	})
	if setting != "on" || err != nil {
		t.Errorf("synchronous_commit is %s (%v)", setting, err)
	}
	other, err := Open(t.Context(), Options{URL: address.String(), Serve: true})
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "synchronous_commit = off") {
		t.Errorf("a start: %v", err)
	}
	if err == nil {
		other.Close()
	}
}
