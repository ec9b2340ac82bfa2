package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/stores"
)

// Keys works directly on the API keys of a database. A server may run on it meanwhile.
type Keys struct {
	store *stores.Stores
	keys  *keys.Service
}

// OpenKeys opens the database for its keys. It creates a database that does not exist.
func OpenKeys(ctx context.Context, database string) (*Keys, error) {
	where, err := databaseOf(or(database, Options{}.WithDefaults().Database))
	if err != nil {
		return nil, err
	}
	st, err := stores.Open(ctx, where)
	if err != nil {
		return nil, err
	}
	return &Keys{store: st, keys: keys.NewService(st.Keys, nil)}, nil
}

// Create makes a key and returns it. The database keeps only a hash of the key itself, and of a
// key with message scopes what checks the tokens that it signs. Entities bind such a key to
// queues, topics and subscriptions.
func (k *Keys) Create(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time, budget forebay.Budget, entities ...string) (forebay.APIKey, error) {
	return k.keys.Create(ctx, tenant, scopes, expires, budget, forebay.LocalActor, entities...)
}

// List returns all keys, oldest first.
func (k *Keys) List(ctx context.Context) ([]forebay.APIKey, error) { return k.keys.List(ctx) }

// Revoke revokes a key.
func (k *Keys) Revoke(ctx context.Context, id string) (forebay.APIKey, error) {
	return k.keys.Revoke(ctx, id, forebay.LocalActor)
}

// SetBudget replaces the budget of a key.
func (k *Keys) SetBudget(ctx context.Context, id string, budget forebay.Budget) (forebay.APIKey, error) {
	return k.keys.SetBudget(ctx, id, budget, forebay.LocalActor)
}

// Close releases the database.
func (k *Keys) Close() error { return k.store.DB.Close() }

// Check is one finding about a database.
type Check struct {
	Name   string
	OK     bool
	Detail string
}

// CheckDatabase checks whether a server could run on the database. It checks that the file opens,
// belongs to Forebay, and is durable and writable. It measures a durable write and finds out
// whether a server uses the database now. It creates no file.
func CheckDatabase(ctx context.Context, database string) (checks []Check, inUse bool) {
	where, err := databaseOf(or(database, Options{}.WithDefaults().Database))
	if err != nil {
		return []Check{{"database", false, err.Error()}}, false
	}
	durable := "fsync and synchronous_commit are on"
	if where.URL == "" {
		if _, err := os.Stat(where.Path); errors.Is(err, os.ErrNotExist) {
			return []Check{checkFolder(filepath.Dir(where.Path))}, false
		}
		inUse, durable = sqlite.InUse(where.Path), "WAL, synchronous=FULL"
	}
	where.Existing = true
	st, err := stores.Open(ctx, where)
	if err != nil {
		return []Check{{"database", false, err.Error()}}, false
	}
	defer st.DB.Close()
	checks = []Check{{"database", true, "opens, is Forebay's, and is durable (" + durable + ")"}}
	took, err := usual(5, func() error { return st.DB.Check(ctx) })
	if err != nil {
		return append(checks, Check{"durable write", false, err.Error()}), inUse
	}
	checks = append(checks, Check{"durable write", took < 100*time.Millisecond, fmt.Sprintf("takes %s", took.Round(10*time.Microsecond))})
	if where.URL != "" {
		checks = append(checks, checkSnapshots(ctx, st))
		return checks, false // any number of processes may use it
	}
	checks = append(checks, checkSpace(ctx, st))
	running := "no server is running on this database"
	if inUse {
		running = "a server is running on this database"
	}
	return append(checks, Check{"server", true, running}), inUse
}

// usual returns the median time of some calls: that of one says little on a busy machine.
func usual(calls int, call func() error) (time.Duration, error) {
	times := make([]time.Duration, calls)
	for i := range times {
		start := time.Now()
		if err := call(); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[calls/2], nil
}

// checkSnapshots finds a transaction, or a replication slot, that makes PostgreSQL keep rows that
// are gone.
func checkSnapshots(ctx context.Context, st *stores.Stores) Check {
	const name = "old snapshots"
	holder, found, err := st.DB.OldestHolder(ctx)
	switch {
	case err != nil:
		return Check{name, false, err.Error()}
	case found && holder.Old():
		return Check{name, false, fmt.Sprintf("VACUUM removes nothing that is gone since the snapshot of %s: end it (docs/postgresql.md, long transactions)", holder)}
	}
	return Check{name, true, "nobody keeps VACUUM from its work for long"}
}

// checkSpace reports the size of a SQLite file. Free space in it is no fault.
func checkSpace(ctx context.Context, st *stores.Stores) Check {
	space, _, err := st.DB.Space(ctx)
	if err != nil {
		return Check{"space", false, err.Error()}
	}
	const mebibyte = 1 << 20
	detail := fmt.Sprintf("the database has %.1f MiB, of which %d %% are free", float64(space.Bytes)/mebibyte, 100*space.FreeBytes/max(space.Bytes, 1))
	if !space.Shrinks {
		detail += "; it is of an earlier version and does not shrink while a server runs: stop the server and run forebay compact once"
	}
	return Check{"space", true, detail}
}

func checkFolder(folder string) Check {
	probe, err := os.CreateTemp(folder, ".forebay-doctor-*")
	if err != nil {
		return Check{"database", false, "the file does not exist and its folder cannot be written to"}
	}
	err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	return Check{"database", err == nil, "does not exist yet; serve will make it"}
}
