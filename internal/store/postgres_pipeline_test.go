package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay/internal/pgtest"
)

func openPostgresConn(t *testing.T) *postgresConn {
	config, err := pgconn.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := connectPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The server stops reading while nobody takes what it answers: both directions are as long as no buffer between is.
func TestLongQuestionsAndAnswers(t *testing.T) {
	c := openPostgresConn(t)
	long := strings.Repeat("x", 48<<20)
	answered, asked := 0, int64(0)
	c.patience()
	err := c.ask([]question{
		{"SELECT repeat('x', CAST(? AS integer))", func(st statement) statement { return st.int(int64(len(long))) }, func(r row) { answered = len(r.text(0)) }},
		{"SELECT length(CAST(? AS text))", func(st statement) statement { return st.text(long) }, func(r row) { asked = r.int(0) }},
	})
	if err != nil || answered != len(long) || asked != int64(len(long)) {
		t.Errorf("%d bytes were answered, %d understood (%v)", answered, asked, err)
	}
}

func TestEmptyIsNotNull(t *testing.T) {
	c := conn{driver: openPostgresConn(t)}
	_, err := c.prep("SELECT CAST('' AS text), CAST(NULL AS text)").one(func(r row) {
		if r.isNull(0) || !r.isNull(1) {
			t.Errorf("an empty text is NULL: %v, NULL is: %v", r.isNull(0), r.isNull(1))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// After an error in the middle the rest is skipped, and the connection goes on.
func TestErrorAmongQuestions(t *testing.T) {
	c := openPostgresConn(t)
	ran := 0
	count := func(row) { ran++ }
	c.patience()
	err := c.ask([]question{{sql: "SELECT 1", answer: count}, {sql: "SELECT 1 / (SELECT 0)", answer: count}, {sql: "SELECT 2", answer: count}})
	if err == nil || ran != 1 {
		t.Errorf("%d statements ran (%v)", ran, err)
	}
	if n, err := c.millis(sqlNow); err != nil || n == 0 {
		t.Errorf("the next statement: %v", err)
	}
}

// A connection that was lost while nobody used it is made anew before anybody is told.
func TestLostConnections(t *testing.T) {
	url := pgtest.Database(t)
	s, err := Open(t.Context(), Options{URL: url, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
	put(t, s, tenant, queue, 1, nil)
	admin, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	const others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	if _, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) "+others).ReadAll(); err != nil {
		t.Fatal(err)
	}
	put(t, s, tenant, queue, 1, nil)
	if got := take(t, s, SubqueueOf(queue, SubqueueMain), 2, time.Minute); len(got) != 2 {
		t.Errorf("%d jobs", len(got))
	}
}
