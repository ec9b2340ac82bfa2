//go:build unix

package kills_test

import (
	"os"
	"testing"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// underKills runs a test of processes that are killed: of one on SQLite, and of two on PostgreSQL.
func underKills(t *testing.T, test func(t *testing.T, o servertest.ProcessOptions, processes int)) {
	t.Helper()
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, servertest.ProcessOptions{Database: servertest.DatabaseFile(t)}, 1)
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: t.TempDir()}, 2)
	})
}
