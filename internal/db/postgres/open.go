package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresSchema holds Forebay's tables unless the URL names another search_path.
const postgresSchema = "forebay"

// Settings of every connection. Statements are planned once, for tables of any size: a plan
// that was made while a table was empty would scan it for ever. So the planner is told that an
// index is for finding one row, not for reading them all. That does not help with a table that
// was empty when it was analyzed. The planner thinks that it has one row, and that a scan for
// each join is cheaper than a lookup. The planner considers an index scan there only for a join
// by =, which might serve a merge. So a lookup for each row of another table is joined by "=
// ANY (ARRAY[…])" (see [lookups]). A client that stops in the middle of a transaction must not
// stop the others for long.
var postgresSettings = map[string]string{
	"application_name":                    "forebay",
	"lock_timeout":                        "0", // statement_timeout is the bound
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"enable_bitmapscan":                   "off",
	"enable_sort":                         "off",
	"enable_material":                     "off",
	"enable_indexscan":                    "on", // these six as they are by default
	"enable_indexonlyscan":                "on",
	"enable_nestloop":                     "on",
	"enable_hashagg":                      "on",
	"from_collapse_limit":                 "8",
	"join_collapse_limit":                 "8",
	"geqo":                                "off", // which guesses at plans
	"jit":                                 "off",
	"random_page_cost":                    "1",
	"cpu_index_tuple_cost":                "10",
	"default_transaction_isolation":       "read committed", // a snapshot must not be older than the lock
	"idle_in_transaction_session_timeout": "5s",
	"tcp_user_timeout":                    "10s", // for one that stops while it is being answered
	"tcp_keepalives_idle":                 "15",  // for one that is gone without a word
	"tcp_keepalives_interval":             "5",
	"tcp_keepalives_count":                "4",
	"statement_timeout":                   "20s",
	"client_encoding":                     "UTF8",
	"TimeZone":                            "UTC",
	"bytea_output":                        "hex",
	"client_min_messages":                 "warning", // a commit that is not on the standby is only told by one
}

// NewReader makes connections for reading.
func NewReader(target *Target) func(context.Context) (driver.Conn, error) {
	return func(ctx context.Context) (driver.Conn, error) {
		reader, err := Connect(ctx, target)
		if err != nil {
			return driver.Conn{}, reader.TranslateError(err)
		}
		reader.reader = true
		return driver.Conn{Driver: reader}, nil
	}
}

// ConnectURL connects to a server, and to the schema that the URL names.
func ConnectURL(ctx context.Context, address string) (*Conn, error) {
	target, err := newTarget(address)
	if err != nil {
		return nil, err
	}
	c, err := Connect(ctx, target)
	if err != nil {
		return nil, unreachable(err)
	}
	return c, nil
}

// UnusableOnServer is the error for a caller when a server cannot be used.
func UnusableOnServer(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, driver.ErrDisconnected) {
		return unreachable(err)
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case lacksRights:
			return driver.Unusable("this database user may not create or change Forebay's schema and its tables; "+
				"have their owner run forebay migrate up", err)
		case "3F000":
			return driver.Unusable("there is no schema of the URL's search_path; create it first", err)
		}
	}
	return fmt.Errorf("open database: %w", err)
}

const minPostgresVersion = 130000

// PrepareDatabase checks the server and brings the schema up to date.
func (c *Conn) PrepareDatabase(ctx context.Context, existing bool) error {
	if err := c.checkServer(); err != nil {
		return err
	}
	version, err := c.version()
	if err == nil {
		err = schema.RefuseUnknown("the database", version)
	}
	if err != nil {
		return err
	}
	if existing && version == 0 {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no Forebay database there yet")
	}
	if version < schema.Latest() {
		return c.migrate(ctx)
	}
	return checkRights(c)
}

// checkServer refuses a server under whose settings an acknowledged write could be lost.
func (c *Conn) checkServer() error {
	// What was set of a connection does not count.
	setting := func(name string) (value string, err error) {
		_, err = (driver.Conn{Driver: c}).Prep("SELECT reset_val FROM pg_settings WHERE name = ?").Text(name).One(func(r driver.Row) { value = r.Text(0) })
		return value, err
	}
	for name, why := range map[string]string{
		"fsync":              "an acknowledged write would not survive a power cut",
		"synchronous_commit": "an acknowledged write would not survive a crash of the server",
		"full_page_writes":   "a power cut could damage the database",
	} {
		value, err := setting(name)
		if err != nil {
			return err
		}
		if value == "off" {
			return forebay.Errorf(forebay.CodeDatabaseUnusable, "the database server has %s = off: %s; turn it on", name, why)
		}
	}
	role, err := setting("session_replication_role")
	if err != nil {
		return err
	}
	if role == "replica" {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "sessions of this database user have session_replication_role = replica: "+
			"the audit log would not be protected, and bodies that messages share would never be removed; reset it for the user, the database or the server")
	}
	var version int64
	value, err := setting("server_version_num")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(value, &version); err != nil || version < minPostgresVersion {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "the database server is too old: PostgreSQL 13 or newer is needed")
	}
	if encoding, err := setting("server_encoding"); err != nil || encoding != "UTF8" {
		return errors.Join(err, forebay.Errorf(forebay.CodeDatabaseUnusable, "the database's encoding is %s; it must be UTF8", encoding))
	}
	return nil
}
