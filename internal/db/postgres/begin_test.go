package postgres

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// A transaction may begin twice, because the connection breaks in the middle of its beginning.
// Whoever asked something gets the answers of the second beginning alone.
func TestLostBeginningAnswersNothing(t *testing.T) {
	c := openPostgresConn(t)
	c.Shared = true
	if err := c.ExecSimple("CREATE SEQUENCE breaks"); err != nil {
		t.Fatal(err)
	}
	backend := c.backend
	var rows, values []int64
	breaks := "SELECT CASE WHEN nextval('breaks') = 1 THEN CAST(pg_terminate_backend(pg_backend_pid()) AS integer) ELSE 7 END"
	_, err := c.Begin(driver.BeginOptions{Pipeline: []driver.PipelineQuery{
		{SQL: "SELECT 5", OnRow: func(r driver.Row) { rows = append(rows, r.Int(0)) }},
		{SQL: breaks, Value: func(v int64) { values = append(values, v) }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if c.backend == backend {
		t.Fatal("the connection did not break")
	}
	if len(rows) != 1 || rows[0] != 5 || len(values) != 1 || values[0] != 7 {
		t.Errorf("the answers are %v and %v", rows, values)
	}
}
