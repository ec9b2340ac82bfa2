package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// unreachable says why there is no connection, without what a server's message may quote.
func unreachable(err error) error { return driver.Unusable(whyUnreachable(err), err) }

func whyUnreachable(err error) string {
	var known *forebay.Error
	var refused *pgconn.PgError
	var otherName x509.HostnameError
	var untrusted *tls.CertificateVerificationError
	var noHost *net.DNSError
	var dialed *pgconn.ConnectError
	errors.As(err, &dialed)
	switch {
	case errors.As(err, &known):
		return known.Message
	case errors.As(err, &refused) && refused.Code == wrongPassword && dialed != nil && dialed.Config.Password == "":
		return "the database server wants a password, and there is none: give PGPASSWORD, or a file as PGPASSFILE or ~/.pgpass"
	case errors.As(err, &refused):
		return refusal(refused.Code)
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return "the database server takes no writes: it is a standby or read-only; name the primary, too"
	case errors.As(err, &otherName):
		return "the database server's certificate is not for the host that the URL names"
	case errors.As(err, &untrusted):
		return "the database server's certificate is not one that sslmode and sslrootcert accept"
	case strings.Contains(err.Error(), "server refused TLS connection") && (dialed == nil || demandsTLS(dialed.Config)):
		return "the database server has no TLS, which the URL's sslmode demands"
	case errors.As(err, &noHost):
		return "the database server cannot be reached: nobody knows its host's name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the database server cannot be reached: nothing listens at that host and port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "the database server cannot be reached: it does not answer, or a firewall is in the way"
	case dialed == nil:
		return "the connection to the database server was lost"
	}
	return "the database server cannot be reached"
}

// demandsTLS reports whether every way to a server takes TLS. By default it is tried first, and a
// connection without it may break for another reason.
func demandsTLS(c *pgconn.Config) bool {
	return c.TLSConfig != nil && !slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
}

const wrongPassword = "28P01"

// refusal says what a server's code means when it takes no connection.
func refusal(code string) string {
	switch code {
	case wrongPassword:
		return "the database server refuses this user or password"
	case "28000":
		return "the database server refuses this user: there is none of that name, or pg_hba.conf lets it in another way, such as by TLS"
	case "3D000":
		return "the database server has no database of that name; create it first"
	case lacksRights:
		return "this database user may not connect to the database"
	case "42704":
		return "the database server does not know a parameter of the URL"
	case "22023":
		return "the database server does not take the value of a parameter of the URL, such as a search_path without its double quotes"
	case "53300":
		return "the database server has no connection left for this user or database"
	case "55000":
		return "the database takes no connections"
	case "57P01", "57P02", "57P03":
		return "the database server is starting or stopping"
	}
	return "the database server refuses the connection (" + code + ")"
}
