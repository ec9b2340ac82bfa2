package signin

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps sessions.
type Store struct{ *queue.Store }

func (s *Store) Attach(*db.DB)   {}
func (s *Store) Join(*db.Writer) {}

// Person is whom an OpenID Connect provider vouches for.
type Person struct {
	Name   string // shown; no two people have the same
	Tenant string
	Scopes []forebay.Scope
	Detail string // what the audit log is to say of the sign-in; it is not stored with the session
}

// Actor names the person where API keys stand by their ids.
func (p Person) Actor() string { return forebay.PersonPrefix + p.Name }

// session is a row.
type session struct {
	hash      []byte
	keyID     string // "": a person's
	person    Person
	createdAt time.Time
	usedAt    time.Time
	expiresAt time.Time
}

const (
	// maxPerKey is how many sessions one key or person has at once. The oldest ends for a new
	// one.
	maxPerKey = 32
	// maxSwept is how many expired rows one sign-in removes.
	maxSwept = 100
)

const (
	sqlExpired = "SELECT hash FROM signins WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
	sqlOldest  = "SELECT hash FROM signins WHERE owner = ? ORDER BY created_at DESC LIMIT 1000 OFFSET ?"
	sqlInsert  = `
INSERT INTO signins (hash, owner, key_id, name, tenant, scopes, created_at, used_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	columns   = "SELECT hash, key_id, name, tenant, scopes, created_at, used_at, expires_at FROM signins "
	sqlGet    = columns + "WHERE hash = ?"
	sqlBegins = columns + "WHERE hash BETWEEN ? AND ? ORDER BY hash LIMIT 1"
	// Those that count: ?1 is now, ?2 the time since which they must have been used, and ?3 is 1
	// where people sign in too.
	sqlLatest = `
SELECT s.hash, s.key_id, s.name, s.tenant, s.scopes, s.created_at, s.used_at, s.expires_at
FROM signins s LEFT JOIN api_keys k ON k.id = s.key_id
WHERE s.expires_at > ?1 AND s.used_at > ?2
  AND (k.id IS NOT NULL AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ?1) OR s.key_id IS NULL AND ?3 = 1)
ORDER BY s.expires_at DESC LIMIT ?4`
	sqlOwned  = columns + "WHERE owner = ? ORDER BY created_at DESC LIMIT ?"
	sqlUse    = "UPDATE signins SET used_at = ? WHERE hash = ? AND used_at < ?"
	sqlDelete = "DELETE FROM signins WHERE hash = ?"
	sqlTenant = "SELECT tenant FROM api_keys WHERE id = ?"
)

// insert stores a session that lasts as long as lifetime, and says so in the audit log.
func (s *Store) insert(ctx context.Context, row session, lifetime time.Duration, entry audit.Act) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		scopes := make([]string, len(row.person.Scopes))
		for i, scope := range row.person.Scopes {
			scopes[i] = string(scope)
		}
		owner := row.owner()
		if err := removeAll(t, t.Prep(sqlExpired).Int(t.Now).Int(maxSwept)); err != nil {
			return struct{}{}, err
		}
		if err := removeAll(t, t.Prep(sqlOldest).Text(owner).Int(maxPerKey-1)); err != nil {
			return struct{}{}, err
		}
		err := t.Prep(sqlInsert).Blob(row.hash).Text(owner).TextOrNull(row.keyID).Text(row.person.Name).Text(row.person.Tenant).Text(strings.Join(scopes, " ")).
			Int(t.Now).Int(t.Now).Int(t.Now + lifetime.Milliseconds()).Exec()
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, audit.Append(t, entry)
	})
	return err
}

// removeAll removes the sessions whose hashes a query returns. They are read first, because
// PostgreSQL would walk the whole table for a subquery while it believes the table to be empty.
func removeAll(t *db.Tx, hashes driver.Statement) error {
	_, err := removeEach(t, hashes)
	return err
}

// removeEach is removeAll, and returns how many there were.
func removeEach(t *db.Tx, hashes driver.Statement) (removed int, err error) {
	var all [][]byte
	err = hashes.Each(func(r driver.Row) error {
		all = append(all, bytes.Clone(r.Blob(0)))
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, hash := range all {
		if err := t.Prep(sqlDelete).Blob(hash).Exec(); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// get returns the session with that hash, whatever its age.
func (s *Store) get(ctx context.Context, hash []byte) (row session, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlGet).Blob(hash).One(func(r driver.Row) { row = readSession(r) })
		return err
	})
	return row, found, err
}

// beginsWith returns the session whose hash begins with a prefix, whatever its age.
func (s *Store) beginsWith(ctx context.Context, prefix []byte) (row session, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlBegins).Blob(prefix).Blob(after(prefix)).One(func(r driver.Row) { row = readSession(r) })
		return err
	})
	return row, found, err
}

// latest returns the sessions that count, those that end last first, and whether there are more.
// One counts until nobody has used it for idle. Those of people count if people is true.
func (s *Store) latest(ctx context.Context, idle time.Duration, people bool) (rows []session, more bool, err error) {
	byPeople := int64(0)
	if people {
		byPeople = 1
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		now := c.Now()
		rows, err = readSessions(c.Prep(sqlLatest).Int(now).Int(now - idle.Milliseconds()).Int(byPeople).Int(forebay.MaxSignIns + 1))
		return err
	})
	if len(rows) > forebay.MaxSignIns {
		return rows[:forebay.MaxSignIns], true, err
	}
	return rows, false, err
}

// owned returns all sessions that are kept of an owner, whatever their age.
func (s *Store) owned(ctx context.Context, owner string) (rows []session, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		rows, err = readSessions(c.Prep(sqlOwned).Text(owner).Int(forebay.MaxSignIns))
		return err
	})
	return rows, err
}

// tenantOf returns the tenant of an API key, also of one that has ended, or "".
func (s *Store) tenantOf(ctx context.Context, keyID string) (tenant string, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlTenant).Text(keyID).One(func(r driver.Row) { tenant = r.Text(0) })
		return err
	})
	return tenant, err
}

func readSessions(query driver.Statement) (rows []session, err error) {
	err = query.Each(func(r driver.Row) error {
		rows = append(rows, readSession(r))
		return nil
	})
	return rows, err
}

func readSession(r driver.Row) session {
	row := session{hash: bytes.Clone(r.Blob(0)), keyID: r.Text(1), person: Person{Name: r.Text(2), Tenant: r.Text(3)},
		createdAt: driver.FromMillis(r.Int(5)), usedAt: driver.FromMillis(r.Int(6)), expiresAt: driver.FromMillis(r.Int(7))}
	for scope := range strings.FieldsSeq(r.Text(4)) {
		row.person.Scopes = append(row.person.Scopes, forebay.Scope(scope))
	}
	return row
}

// use notes that a session is used now.
func (s *Store) use(ctx context.Context, hash []byte) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange, Volatile: true}, func(t *db.Tx) (struct{}, error) {
		return struct{}{}, t.Prep(sqlUse).Int(t.Now).Blob(hash).Int(t.Now).Exec()
	})
	return err
}

// remove ends a session. It says so in the audit log if it was there.
func (s *Store) remove(ctx context.Context, hash []byte, entry audit.Act) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		removed, err := t.Prep(sqlDelete).Blob(hash).Count()
		if err != nil || removed == 0 {
			return struct{}{}, err
		}
		return struct{}{}, audit.Append(t, entry)
	})
	return err
}

// removeOf ends all sessions of an owner. It says so in the audit log if there were any.
func (s *Store) removeOf(ctx context.Context, owner string, entry audit.Act) (removed int, err error) {
	return db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (int, error) {
		removed, err := removeEach(t, t.Prep(sqlOldest).Text(owner).Int(0))
		if err != nil || removed == 0 {
			return 0, err
		}
		return removed, audit.Append(t, entry)
	})
}
