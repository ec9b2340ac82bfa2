package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// committedBy says what the server's answer to a COMMIT means.
func committedBy(tag pgconn.CommandTag, warning string) error {
	switch {
	case tag.String() != "COMMIT":
		return ErrRolledBack
	case warning != "":
		return fmt.Errorf("%w: %s", errUnconfirmed, warning)
	}
	return nil
}

var (
	// The server answers the COMMIT of a transaction that an error had ended with ROLLBACK.
	ErrRolledBack = errors.New("the transaction had failed and was rolled back")
	// errUnconfirmed marks a commit of which nobody knows whether it will last.
	errUnconfirmed = errors.New("the server committed with a warning")
)

// TranslateError follows the classes of PostgreSQL's error codes (its manual, appendix A).
func (c *Conn) TranslateError(err error) error {
	if err == nil {
		return nil
	}
	var refused *pgconn.PgError
	var network net.Error
	var dialed *pgconn.ConnectError
	unavailable := func() error {
		return forebay.Errorf(forebay.CodeUnavailable, "the database cannot be reached right now; try again").Caused(err)
	}
	switch {
	case errors.Is(err, errUnconfirmed):
		return forebay.Errorf(forebay.CodeUnavailable,
			"the database's standby has not confirmed the change, which may be lost or may last; repeat the request").Caused(err)
	case errors.Is(err, errPooled):
		return forebay.Errorf(forebay.CodeUnavailable, "%s", pooled).Caused(err)
	case errors.Is(err, ErrRolledBack):
		return forebay.Errorf(forebay.CodeUnavailable, "the database undid the change; try again").Caused(err)
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.As(err, &refused) && refused.Code == readOnly:
		return forebay.Errorf(forebay.CodeUnavailable,
			"the database takes no writes right now: it is a standby, or its disk is nearly full; try again").Caused(err)
	case errors.As(err, &dialed):
		return forebay.Errorf(forebay.CodeUnavailable, "%s; try again", whyUnreachable(err)).Caused(err)
	case errors.As(err, &refused) && refused.Code == NoSpace:
		return forebay.Errorf(forebay.CodeStorageFull, "the database's disk is full; nothing was stored").Caused(err)
	case errors.As(err, &refused) && refused.Code == lacksRights:
		return forebay.Errorf(forebay.CodeUnavailable,
			"the database user's rights do not suffice; forebay doctor says which to grant").Caused(err)
	case errors.As(err, &refused):
		switch refused.Code[:2] {
		case "08", "53", "57", "58", "25", "40", "55", "28", "3D", "XX":
			return unavailable()
		}
	case errors.Is(err, driver.ErrDisconnected), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return unavailable()
	}
	return err
}

// NoSpace is PostgreSQL's code for a disk that is full, or a file system of shared memory.
const NoSpace = "53100"

// readOnly is that of a write where default_transaction_read_only is on. Providers turn it on
// while a server's disk is nearly full.
const readOnly = "25006"
