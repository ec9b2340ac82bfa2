package servertest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"zombiezen.com/go/sqlite"
)

// seedVariable repeats a crash test's choices; what the scheduler does it cannot repeat.
const seedVariable = "FOREBAY_CRASH_SEED"

// Seed is what a crash test makes its choices by. It logs the seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %s", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	return seed
}

// Size is how much to do: less when the tests are to be short.
func Size(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// CheckIntegrity fails if a file of SQLite is damaged.
func CheckIntegrity(t testing.TB, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stmt, _, err := conn.PrepareTransient("PRAGMA integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stmt.Finalize() }()
	if ok, err := stmt.Step(); err != nil || !ok || stmt.ColumnText(0) != "ok" {
		t.Errorf("the database is damaged: %v %s", err, stmt.ColumnText(0))
	}
}
