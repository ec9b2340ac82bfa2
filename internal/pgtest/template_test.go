package pgtest

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A template is filled once, also if many ask for copies at once, and each copy is a database of
// its own. One that somebody has swept is made again.
func TestTemplate(t *testing.T) {
	t.Parallel()
	var filled atomic.Int64
	p := Template{Name: "test_" + strings.ToLower(rand.Text()[:8]), Fill: func(ctx context.Context, address string) error {
		filled.Add(1)
		return execute(ctx, address, "CREATE TABLE things AS SELECT 1 AS n")
	}}
	name := p.on(time.Now())
	t.Cleanup(func() {
		if err := dropDatabase(context.WithoutCancel(t.Context()), Server(t), name); err != nil {
			t.Error(err)
		}
	})
	count := func(address string) (n int) {
		conn, err := pgx.Connect(t.Context(), address)
		if err == nil {
			defer conn.Close(t.Context())
			err = conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n)
		}
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			address, drop, err := p.CopyOn(t.Context(), Server(t))
			if err != nil {
				t.Error(err)
				return
			}
			if err := execute(t.Context(), address, "INSERT INTO things VALUES (2)"); err != nil {
				t.Error(err)
			}
			if n := count(address); n != 2 {
				t.Errorf("a copy has %d rows", n)
			}
			if err := drop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := filled.Load(); n != 1 {
		t.Errorf("it was filled %d times", n)
	}
	if err := dropDatabase(t.Context(), Server(t), name); err != nil {
		t.Fatal(err)
	}
	if n := count(p.Copy(t)); n != 1 {
		t.Errorf("a copy of the next template has %d rows", n)
	}
}
