package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
)

// interrupted copies until so many chunks are written.
func interrupted(t testing.TB, from, to Options, chunks int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Copy(ctx, from, to, func(CopyProgress) {
		if chunks--; chunks == 0 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted copy ended with %v", err)
	}
}

func TestUnfinishedCopy(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			from, to := database(t), database(t)
			fill(t, from, 10)
			interrupted(t, from, to, 4)
			for _, serve := range []bool{true, false} {
				where := to
				where.Serve = serve
				if _, err := Open(t.Context(), where); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "unfinished copy") {
					t.Errorf("an unfinished copy was opened: %v", err)
				}
			}
			if _, err := Copy(t.Context(), to, database(t), quiet); err == nil || !strings.Contains(err.Error(), "unfinished copy") {
				t.Errorf("an unfinished copy was copied: %v", err)
			}
			other := database(t)
			s, err := Open(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, insertNames("other", 1)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Copy(t.Context(), other, to, quiet); forebay.CodeOf(err) != forebay.CodeConflict {
				t.Errorf("a copy of another database was completed: %v", err)
			}

			// Given up, it is as if it had never been.
			if err := AbandonCopy(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			if schema, err := ReadSchema(t.Context(), to); err != nil || schema.Database != 0 {
				t.Errorf("schema %d is left: %v", schema.Database, err)
			}
			if err := AbandonCopy(t.Context(), to); forebay.CodeOf(err) != forebay.CodeConflict {
				t.Errorf("abandoned twice: %v", err)
			}
			interrupted(t, from, to, 4)
			if _, err := Copy(t.Context(), from, to, quiet); err != nil {
				t.Fatal(err)
			}
			if err := AbandonCopy(t.Context(), to); forebay.CodeOf(err) != forebay.CodeConflict {
				t.Errorf("a complete copy was abandoned: %v", err)
			}
		})
	}
}

// An administrator ends the connections in the middle: the copy fails, and goes on the next time.
func TestCopyLosesItsConnection(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for _, lost := range []int{0, 1} {
		sides := [2]Options{engines["postgresql"](t), engines["postgresql"](t)}
		fill(t, sides[0], 10)
		chunks := 0
		_, err := Copy(t.Context(), sides[0], sides[1], func(CopyProgress) {
			if chunks++; chunks == 5 {
				if n, err := pgtest.Terminate(t.Context(), sides[lost].URL); n != 1 || err != nil {
					t.Errorf("ended %d connections: %v", n, err)
				}
			}
		})
		var e *forebay.Error
		if !errors.As(err, &e) || e.Code != forebay.CodeUnavailable || e.Field != []string{"from", "to"}[lost] {
			t.Errorf("the copy ended with %v", err)
		}
		if report, err := Copy(t.Context(), sides[0], sides[1], quiet); err != nil || report.Rows == 0 {
			t.Errorf("it did not go on: %v", err)
		}
	}
}

// A source that went on between two tries is found out, though its first rows are the same.
func TestCopyOfChangedSource(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	from, to := engines["sqlite"](t), engines["postgresql"](t)
	fill(t, from, 10)
	interrupted(t, from, to, 8)
	c, err := sqlite.OpenWriter(from.Path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := (driver.Conn{Driver: c}).Prep("UPDATE attempts SET outcome = 'lost' WHERE seq = (SELECT max(seq) FROM attempts)").Exec(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	_, err = Copy(t.Context(), from, to, quiet)
	if forebay.CodeOf(err) != forebay.CodeConflict || !strings.Contains(err.Error(), "the copy of attempts is not the same: 7 rows") {
		t.Errorf("%v", err)
	}
	to.Serve = true
	if _, err := Open(t.Context(), to); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
		t.Errorf("a wrong copy was opened: %v", err)
	}
}

func TestCopyRefuses(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			from := database(t)
			refused := func(from, to Options, field string, code forebay.Code, says string) {
				t.Helper()
				_, err := Copy(t.Context(), from, to, quiet)
				var e *forebay.Error
				if !errors.As(err, &e) || e.Field != field || e.Code != code || !strings.Contains(e.Message, says) {
					t.Errorf("got %v, want %s: … %s …", err, field, says)
				}
			}
			refused(from, database(t), "from", forebay.CodeDatabaseUnusable, "no Forebay database there yet")
			fill(t, from, 10)
			refused(from, from, "to", forebay.CodeInvalidRequest, "is the database to copy from")
			full := database(t)
			fill(t, full, 10)
			refused(from, full, "to", forebay.CodeConflict, "is not empty")

			serving := from
			serving.Serve = true
			s, err := Open(t.Context(), serving)
			if err != nil {
				t.Fatal(err)
			}
			to := database(t)
			refused(from, to, "from", forebay.CodeDatabaseUnusable, "stop it first")
			refused(full, from, "to", forebay.CodeDatabaseUnusable, "stop it first")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			// While it is copied nobody serves it.
			_, err = Copy(t.Context(), from, to, func(p CopyProgress) {
				for _, where := range []Options{serving, {Path: to.Path, URL: to.URL, Serve: true}} {
					if _, err := Open(t.Context(), where); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
						t.Errorf("opened during a copy: %v", err)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}

			setVersion(t, full, schema.Oldest-1)
			refused(full, database(t), "from", forebay.CodeDatabaseUnusable, "before the first release")
			refused(from, full, "to", forebay.CodeDatabaseUnusable, "before the first release")
			setVersion(t, full, schema.Oldest)
			refused(full, database(t), "from", forebay.CodeDatabaseUnusable, "forebay migrate up")
			refused(from, full, "to", forebay.CodeDatabaseUnusable, "forebay migrate up")
			setVersion(t, full, schema.Latest()+1)
			refused(full, database(t), "from", forebay.CodeDatabaseUnusable, "newer Forebay")
			refused(from, full, "to", forebay.CodeDatabaseUnusable, "newer Forebay")
		})
	}
}

func setVersion(t testing.TB, where Options, version int64) {
	t.Helper()
	if where.URL == "" {
		c, err := sqlite.OpenReader(where.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, sql := range []string{"PRAGMA query_only = OFF", fmt.Sprintf("PRAGMA user_version = %d", version)} {
			if err := c.Driver.(*sqlite.Conn).Run(sql); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	c, err := postgres.ConnectURL(t.Context(), where.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.ExecSimple(fmt.Sprintf("UPDATE schema_version SET version = %d", version)); err != nil {
		t.Fatal(err)
	}
}

// A process that had to connect again is still known to be there.
func TestPresenceOutlivesAConnection(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	from, to := engines["postgresql"](t), engines["sqlite"](t)
	from.Serve = true
	s, err := Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := pgtest.Terminate(t.Context(), from.URL); err != nil {
		t.Fatal(err)
	}
	for s.Check(t.Context()) != nil {
		if t.Context().Err() != nil {
			t.Fatal("it does not connect again")
		}
	}
	from.Serve = false
	if _, err := Copy(t.Context(), from, to, quiet); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("a database in use was copied: %v", err)
	}
}
