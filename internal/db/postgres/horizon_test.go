package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// Who holds a snapshot is named by process, application and user, not by what it asks.
func TestOldestHolderIsNamed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	c, err := postgres.ConnectURL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "reports"
	other, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	if _, err := other.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'secret' FROM pg_class LIMIT 1").ReadAll(); err != nil {
		t.Fatal(err)
	}
	h, found, err := postgres.OldestHolder(driver.Conn{Driver: c})
	if err != nil || !found {
		t.Fatalf("found %t: %v", found, err)
	}
	if want := fmt.Sprintf("process %d (reports of %s)", other.PID(), config.User); h.Name != want || h.For <= 0 || h.Old() || strings.Contains(h.String(), "secret") {
		t.Errorf("found %s, not %s", h, want)
	}
}

func TestHolderIsOldByTimeOrByTransactions(t *testing.T) {
	for _, c := range []struct {
		holder postgres.Holder
		old    bool
	}{
		{postgres.Holder{For: 5 * time.Minute}, true},
		{postgres.Holder{For: 4 * time.Minute, Transactions: 100_000}, false},
		{postgres.Holder{Transactions: 50_000}, true},
		{postgres.Holder{Transactions: 49_999}, false},
	} {
		if c.holder.Old() != c.old {
			t.Errorf("%s: old is %t", c.holder, !c.old)
		}
	}
}
