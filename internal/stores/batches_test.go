package stores_test

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
)

// What waits in a transaction on PostgreSQL, and is batched there, does the same as if it was done
// one after the other. That is so for all statements that say which rows they use.
func TestBatchesChangeNothing(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	dbtest.BatchesOnPostgres(t, 3)
}
