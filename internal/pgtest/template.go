package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Template is a database that tests get copies of: a copy takes less than the statements that
// make its tables. The first test binary that asks a server for a copy makes the template there.
type Template struct {
	// Name says what is in it, so that another content has another name. It has letters, digits
	// and underscores.
	Name string
	// Fill makes the content of an empty database, and closes its connections.
	Fill func(ctx context.Context, address string) error
}

// Copy creates a copy for one test and returns its URL. It is dropped when the test ends.
func (p Template) Copy(t testing.TB) string {
	t.Helper()
	return dropped(t, p.CopyOn, Server(t))
}

// CopyOn creates a copy on a server and returns its URL. drop drops it and ends the connections
// that are still open.
func (p Template) CopyOn(ctx context.Context, server string) (address string, drop func(context.Context) error, err error) {
	template := p.on(time.Now())
	address, drop, err = createLike(ctx, server, template)
	if code := new(pgconn.PgError); errors.As(err, &code) && code.Code == "3D000" { // there is no such template
		if err = p.make(ctx, server, template); err == nil {
			address, drop, err = createLike(ctx, server, template)
		}
	}
	return address, drop, err
}

// on is the name of the template's database on a day. Those of other days are swept.
func (p Template) on(now time.Time) string {
	return databasePrefix + strconv.FormatInt(now.Truncate(abandoned).Unix(), 10) + "_template_" + p.Name
}

// make makes the template, unless another process was faster. It is complete once it has its name.
func (p Template) make(ctx context.Context, server, name string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) // which unlocks it
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return err
	}
	var made bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&made); err != nil || made {
		return err
	}
	address, drop, err := CreateDatabase(ctx, server)
	if err != nil {
		return err
	}
	if err := p.Fill(ctx, address); err != nil {
		return errors.Join(fmt.Errorf("fill a template: %w", err), drop(ctx))
	}
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	draft := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	_, err = conn.Exec(ctx, "ALTER DATABASE "+draft+" WITH ALLOW_CONNECTIONS false") // a copy needs that nobody is connected
	if err == nil {
		_, err = terminate(ctx, conn, strings.TrimPrefix(u.Path, "/"))
	}
	if err == nil {
		_, err = conn.Exec(ctx, "ALTER DATABASE "+draft+" RENAME TO "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a template: %w", err), drop(ctx))
	}
	return nil
}

// createLike creates a database as a copy of another one.
func createLike(ctx context.Context, server, template string) (address string, drop func(context.Context) error, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", nil, errors.New("the server's URL cannot be read") // the error would show the password
	}
	name := databasePrefix + strconv.FormatInt(time.Now().Unix(), 10) + "_" + strings.ToLower(rand.Text()[:8])
	if err := administer(ctx, server, "CREATE DATABASE "+name+" TEMPLATE "+pgx.Identifier{template}.Sanitize()); err != nil {
		return "", nil, fmt.Errorf("create a database: %w", err)
	}
	u.Path = "/" + name
	return u.String(), func(ctx context.Context) error { return dropDatabase(ctx, server, name) }, nil
}
