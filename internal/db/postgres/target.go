package postgres

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/jackc/pgx/v5/pgconn"
)

// Target is a server and how to connect to it. Files that the URL or the environment names are
// read again for each connection, as libpq does it. So passwords, certificates and services may
// change while a process runs.
type Target struct {
	*pgconn.Config // as it was read first; its settings and callbacks go for every connection
	address        string
	tokens         tokens // nil: the password is one
}

// newTarget reads a database URL.
func newTarget(address string) (*Target, error) {
	config, err := parse(address)
	if err != nil {
		return nil, err
	}
	t := &Target{Config: config, address: address}
	switch value := config.RuntimeParams[entraParameter]; value {
	case "", "false":
	case "true":
		if t.tokens, err = entraTokens(config); err != nil {
			return nil, err
		}
	default:
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "the database URL's %s must be true or false", entraParameter)
	}
	delete(config.RuntimeParams, entraParameter)
	maps.Copy(config.RuntimeParams, postgresSettings)
	if config.RuntimeParams["search_path"] == "" {
		config.RuntimeParams["search_path"] = postgresSchema
	}
	return t, nil
}

// Copy has settings and callbacks of its own.
func (t *Target) Copy() *Target {
	other := *t
	other.Config = t.Config.Copy()
	return &other
}

// current is how to connect now.
func (t *Target) current(ctx context.Context) (*pgconn.Config, error) {
	config, err := parse(t.address)
	if err != nil {
		return nil, err
	}
	if t.tokens != nil {
		if config.Password, err = t.tokens(ctx); err != nil {
			return nil, err
		}
	}
	config.RuntimeParams, config.OnNotice, config.OnNotification = maps.Clone(t.RuntimeParams), t.OnNotice, t.OnNotification
	return config, nil
}

func parse(address string) (*pgconn.Config, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", misread(err)) // err may quote the password
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
	return config, nil
}

// misread says what is wrong with a database URL, without quoting it.
func misread(err error) string {
	var file *fs.PathError
	if errors.As(err, &file) {
		return "a file that the database URL or the environment names cannot be read: " + file.Path + ": " + file.Err.Error()
	}
	return "the database URL, or a PG variable of the environment, has a value that PostgreSQL does not know"
}
