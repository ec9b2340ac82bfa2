package postgres

import (
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// Holder is who keeps VACUUM from removing rows that are gone.
type Holder struct {
	Name         string        // such as "process 4711 (psql of bi)"
	For          time.Duration // 0: the server does not say
	Transactions int64         // that have begun since
}

// A snapshot counts as old after either of these. A replication slot has no time, and the server
// tells other users' times to members of pg_read_all_stats only.
const (
	oldSnapshot     = 5 * time.Minute
	oldTransactions = 50_000
)

// Old reports whether scans may have become slower for it.
func (h Holder) Old() bool {
	return h.For >= oldSnapshot || h.For == 0 && h.Transactions >= oldTransactions
}

func (h Holder) String() string {
	if h.For == 0 {
		return fmt.Sprintf("%s, for %d transactions", h.Name, h.Transactions)
	}
	return fmt.Sprintf("%s, for %s", h.Name, h.For.Round(time.Second))
}

// Rows of a database are kept for snapshots in it, and for those of replication, which have none.
// Query texts are left out: they may have secrets.
const sqlOldestHolder = `
SELECT name, CAST(coalesce(1000 * seconds, 0) AS BIGINT), CAST(transactions AS BIGINT) FROM (
  SELECT 'process ' || pid || ' (' || coalesce(nullif(application_name, ''), 'no application_name') || ' of ' || coalesce(usename, 'nobody') || ')' AS name,
    extract(epoch FROM clock_timestamp() - xact_start) AS seconds, greatest(age(backend_xmin), age(backend_xid)) AS transactions
  FROM pg_stat_activity WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
    AND coalesce(backend_type, '') <> 'autovacuum worker' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  UNION ALL SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared), age(transaction)
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL SELECT 'replication slot ' || slot_name, NULL, age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL) holders
ORDER BY transactions DESC LIMIT 1`

// OldestHolder returns who keeps the oldest rows; found is false if nobody keeps any.
func OldestHolder(c driver.Conn) (h Holder, found bool, err error) {
	found, err = c.Prep(sqlOldestHolder).One(func(r driver.Row) {
		h = Holder{Name: r.Text(0), For: time.Duration(r.Int(1)) * time.Millisecond, Transactions: r.Int(2)}
	})
	return h, found, err
}
