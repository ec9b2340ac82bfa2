package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

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
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"enable_bitmapscan":                   "off",
	"enable_sort":                         "off",
	"enable_material":                     "off",
	"jit":                                 "off",
	"random_page_cost":                    "1",
	"cpu_index_tuple_cost":                "10",
	"default_transaction_isolation":       "read committed", // a snapshot must not be older than the lock
	"idle_in_transaction_session_timeout": "5s",
	"tcp_user_timeout":                    "10s", // for one that stops while it is being answered
	"statement_timeout":                   "20s",
	"client_encoding":                     "UTF8",
	"TimeZone":                            "UTC",
	"bytea_output":                        "hex",
	"client_min_messages":                 "warning", // a commit that is not on the standby is only told by one
}

// NewReader makes connections for reading.
func NewReader(config *pgconn.Config) func(context.Context) (driver.Conn, error) {
	return func(ctx context.Context) (driver.Conn, error) {
		reader, err := Connect(ctx, config)
		if err != nil {
			return driver.Conn{}, reader.TranslateError(err)
		}
		reader.reader = true
		return driver.Conn{Driver: reader}, nil
	}
}

// ConnectURL connects to a server, and to the schema that the URL names.
func ConnectURL(ctx context.Context, address string) (*Conn, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "the database URL is not one that PostgreSQL knows") // err may quote the password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = PostgresDial
	}
	// A server that has gone without a word is noticed while nobody asks it anything.
	alive := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}
	config.DialFunc = (&net.Dialer{Timeout: config.ConnectTimeout, KeepAliveConfig: alive}).DialContext
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	for name, value := range postgresSettings {
		config.RuntimeParams[name] = value
	}
	if config.RuntimeParams["search_path"] == "" {
		config.RuntimeParams["search_path"] = postgresSchema
	}
	c, err := Connect(ctx, config)
	if err != nil {
		return nil, unreachable(err)
	}
	return c, nil
}

// unreachable says why there is no connection, without what a server's message may quote.
func unreachable(err error) error {
	message := "the database server cannot be reached"
	var refused *pgconn.PgError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		message = refusal(refused.Code)
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		message = "the database server takes no writes: it is a standby or read-only; name the primary, too"
	case errors.As(err, &untrusted):
		message = "the database server's certificate is not one that sslmode and sslrootcert accept"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		message = "the database server has no TLS, which the URL's sslmode demands"
	}
	return driver.Unusable(message, err)
}

// refusal says what a server's code means when it takes no connection.
func refusal(code string) string {
	switch code {
	case "28P01":
		return "the database server refuses this user or password"
	case "28000":
		return "the database server refuses this user: there is none of that name, or pg_hba.conf lets it in another way, such as by TLS"
	case "3D000":
		return "the database server has no database of that name; create it first"
	case "42501":
		return "this database user may not connect to the database"
	case "42704":
		return "the database server does not know a parameter of the URL"
	case "53300":
		return "the database server has no connection left for this user or database"
	case "57P03":
		return "the database server is starting or stopping"
	}
	return "the database server refuses the connection (" + code + ")"
}

// UnusableOnServer is the error for a caller when a server cannot be used.
func UnusableOnServer(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case "42501":
			return driver.Unusable("this database user may not create Forebay's schema or its tables", err)
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
	return nil
}

// checkServer refuses a server under whose settings an acknowledged write could be lost.
func (c *Conn) checkServer() error {
	setting := func(name string) (value string, err error) {
		_, err = (driver.Conn{Driver: c}).Prep("SELECT current_setting(?)").Text(name).One(func(r driver.Row) { value = r.Text(0) })
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
