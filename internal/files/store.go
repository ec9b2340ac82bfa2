package files

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps files.
type Store struct{ *queue.Store }

func (s *Store) Attach(*db.DB)   {}
func (s *Store) Join(*db.Writer) {}

// File is a file. Its content is in blob storage.
type File struct {
	No        int64
	ID        string
	Tenant    int64
	Purpose   string
	Name      string
	Size      int64 // bytes
	Blob      string
	CreatedAt time.Time
	ExpiresAt *time.Time // nil: never
}

// Origin is the request that makes something. It finds what an earlier request has made.
type Origin struct {
	Key   string        // its idempotency key; "": none
	Hash  string        // of what it asks for
	Again bool          // the client says that it has sent it before
	Keys  time.Duration // how long a key is remembered
	// Refusal is why the tenant may make nothing new; nil: it may. What is there already is found all
	// the same.
	Refusal error
}

// repeatedWithin is how long after the first request an SDK may repeat it. SDKs give up sooner.
const repeatedWithin = 15 * time.Minute

// Since is the time in milliseconds before which no earlier request counts.
func (o Origin) Since(now int64) int64 {
	if o.Key != "" {
		return now - o.Keys.Milliseconds()
	}
	return now - repeatedWithin.Milliseconds()
}

// Repeats reports whether an earlier request may have made the same.
func (o Origin) Repeats() bool { return o.Key != "" || o.Again }

// ErrOtherRequest refuses an idempotency key that came with another request.
var ErrOtherRequest = forebay.Errorf(forebay.CodeIdempotencyMismatch, "this idempotency key was used with another request")

const fileColumns = "no, id, tenant, purpose, name, size, content_blob, created_at, expires_at"

const fileNumbers = 9 // of columns

func readFile(r driver.Row) File {
	return File{No: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Purpose: r.Text(3), Name: r.Text(4), Size: r.Int(5), Blob: r.Text(6),
		CreatedAt: driver.FromMillis(r.Int(7)), ExpiresAt: driver.FromMillisOrNil(r, 8)}
}

// alive is the condition on a file that is found. The last parameter is the time.
const alive = " AND deleted = 0 AND (expires_at IS NULL OR expires_at > ?)"

const (
	sqlFileByKey = "SELECT " + fileColumns + `, request_hash FROM files
WHERE tenant = ? AND idempotency_key = ? AND created_at > ? AND deleted = 0 ORDER BY created_at DESC LIMIT 1`
	sqlFileByRequest = "SELECT " + fileColumns + `, request_hash FROM files
WHERE tenant = ? AND request_hash = ? AND created_at > ? AND deleted = 0 ORDER BY created_at DESC LIMIT 1`
	sqlInsertFile = `
INSERT INTO files (id, tenant, purpose, name, size, content_blob, created_at, expires_at, idempotency_key, request_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// Add stores a file whose content is in blob storage. lifetime is how long it is kept; 0: for
// ever. existing says that an earlier request has made it, and the new content is not needed.
func (s *Store) Add(ctx context.Context, f File, lifetime time.Duration, o Origin) (made File, existing bool, err error) {
	type added struct {
		file     File
		existing bool
	}
	op := db.Op{Stage: db.StageChange, Party: f.Tenant, Size: len(f.Name)}
	a, err := db.Transact(ctx, s.Writer, op, func(t *db.Tx) (a added, err error) {
		if o.Repeats() {
			sql, value := sqlFileByRequest, o.Hash
			if o.Key != "" {
				sql, value = sqlFileByKey, o.Key
			}
			hash := ""
			a.existing, err = t.Prep(sql).Int(f.Tenant).Text(value).Int(o.Since(t.Now)).One(func(r driver.Row) { a.file, hash = readFile(r), r.Text(fileNumbers) })
			if err == nil && a.existing && hash != o.Hash {
				err = ErrOtherRequest
			}
			if err != nil || a.existing {
				return a, err
			}
		}
		if o.Refusal != nil {
			return a, o.Refusal
		}
		a.file = f
		a.file.Stamp(t, lifetime)
		return a, a.file.Insert(t, o)
	})
	return a.file, a.existing, err
}

// Stamp sets when the file is made and when it expires.
func (f *File) Stamp(t *db.Tx, lifetime time.Duration) {
	f.CreatedAt, f.ExpiresAt = driver.FromMillis(t.Now), nil
	if lifetime > 0 {
		at := f.CreatedAt.Add(lifetime)
		f.ExpiresAt = &at
	}
}

// Insert stores the row of a file as part of a transaction.
func (f *File) Insert(t *db.Tx, o Origin) error {
	return t.Prep(sqlInsertFile).Text(f.ID).Int(f.Tenant).Text(f.Purpose).Text(f.Name).Int(f.Size).Text(f.Blob).Int(f.CreatedAt.UnixMilli()).
		IntOrNull(driver.Millis(f.ExpiresAt)).TextOrNull(o.Key).TextOrNull(o.Hash).Exec()
}

const sqlFile = "SELECT " + fileColumns + " FROM files WHERE id = ? AND tenant = ?" + alive

// File returns a file of the tenant, or forebay.ErrNotFound.
func (s *Store) File(ctx context.Context, tenant int64, id string) (f File, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlFile).Text(id).Int(tenant).Int(c.Now()).One(func(r driver.Row) { f = readFile(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		return err
	})
	return f, err
}

const (
	sqlUse     = "UPDATE files SET uses = uses + 1 WHERE id = ? AND tenant = ? AND purpose = ?" + alive
	sqlUnuse   = "UPDATE files SET uses = uses - 1 WHERE id = ?"
	sqlContent = "SELECT " + fileColumns + " FROM files WHERE id = ?"
)

// Use keeps the content of a file of that purpose until Unuse. It reports whether the tenant has
// such a file.
func Use(t *db.Tx, tenant int64, id, purpose string) (bool, error) {
	n, err := t.Prep(sqlUse).Text(id).Int(tenant).Text(purpose).Int(t.Now).Count()
	return n == 1, err
}

// Unuse ends what Use has begun.
func Unuse(t *db.Tx, id string) error { return t.Prep(sqlUnuse).Text(id).Exec() }

// Used returns a file that is in use, deleted or not.
func (s *Store) Used(ctx context.Context, id string) (f File, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlContent).Text(id).One(func(r driver.Row) { f = readFile(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		return err
	})
	return f, err
}

const sqlDelete = "UPDATE files SET deleted = 1 WHERE id = ? AND tenant = ?" + alive

// Delete hides a file of the tenant for good, or returns forebay.ErrNotFound.
func (s *Store) Delete(ctx context.Context, tenant int64, id string) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange, Party: tenant}, func(t *db.Tx) (struct{}, error) {
		n, err := t.Prep(sqlDelete).Text(id).Int(tenant).Int(t.Now).Count()
		if err == nil && n == 0 {
			err = forebay.ErrNotFound
		}
		return struct{}{}, err
	})
	return err
}

// Query selects files of a tenant. Ids begin with the time, so their order is that of creation.
type Query struct {
	Tenant  int64
	Purpose string // "": any
	After   string // the id after which the page begins, in its order; "": at the first
	Oldest  bool   // the oldest first
	Limit   int
}

// lists are the statements of lists, by whether they are of a purpose and begin with the oldest.
var lists = map[bool]map[bool]string{
	false: {false: sqlList("", "<", "DESC"), true: sqlList("", ">", "ASC")},
	true:  {false: sqlList(" AND purpose = ?5", "<", "DESC"), true: sqlList(" AND purpose = ?5", ">", "ASC")},
}

func sqlList(purpose, after, order string) string {
	return "SELECT " + fileColumns + " FROM files WHERE tenant = ?1 AND id " + after + " ?2 AND deleted = 0 AND (expires_at IS NULL OR expires_at > ?3)" +
		purpose + " ORDER BY id " + order + " LIMIT ?4 + 0"
}

// lastID comes after all ids.
const lastID = "~"

// Files returns a page of files, and whether there are more.
func (s *Store) Files(ctx context.Context, q Query) (list []File, more bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		list, more = nil, false
		after := q.After
		if after == "" && !q.Oldest {
			after = lastID
		}
		st := c.Prep(lists[q.Purpose != ""][q.Oldest]).Int(q.Tenant).Text(after).Int(c.Now()).Int(int64(q.Limit) + 1)
		if q.Purpose != "" {
			st = st.Text(q.Purpose)
		}
		return st.Each(func(r driver.Row) error {
			if len(list) == q.Limit {
				more = true
				return nil
			}
			list = append(list, readFile(r))
			return nil
		})
	})
	return list, more, err
}

// purgedAtOnce is how many files one transaction removes.
const purgedAtOnce = 200

const (
	sqlExpired  = "SELECT no FROM files WHERE expires_at <= ? AND deleted = 0 ORDER BY expires_at LIMIT ? + 0"
	sqlUnneeded = "SELECT no, content_blob FROM files WHERE deleted = 1 AND uses <= 0 AND no > ? ORDER BY no LIMIT ? + 0"
)

var (
	sqlHide = driver.BatchForm("UPDATE files SET deleted = 1 WHERE no = ?",
		"UPDATE files f SET deleted = 1 FROM %s WHERE f.no = ANY (ARRAY[p1])")
	sqlForget = driver.BatchForm("DELETE FROM files WHERE no = ?", "DELETE FROM files f USING %s WHERE f.no = ANY (ARRAY[p1])")
)

// Purge hides some of the files that have expired and removes the rows of some that nobody needs.
// It returns their contents, for the caller to delete, and whether there may be more.
func (s *Store) Purge(ctx context.Context) (blobs []string, more bool, err error) {
	var expired, unneeded []int64 // nobody begins to use a file that is deleted
	err = s.Read(ctx, func(c driver.Conn) error {
		expired, unneeded, blobs = nil, nil, nil
		err := c.Prep(sqlExpired).Int(c.Now()).Int(purgedAtOnce).Each(func(r driver.Row) error { expired = append(expired, r.Int(0)); return nil })
		if err != nil {
			return err
		}
		return c.Prep(sqlUnneeded).Int(0).Int(purgedAtOnce).Each(func(r driver.Row) error {
			unneeded, blobs = append(unneeded, r.Int(0)), append(blobs, r.Text(1))
			return nil
		})
	})
	if err != nil || len(expired)+len(unneeded) == 0 {
		return nil, false, err
	}
	op := db.Op{Stage: db.StageChange, Rows: len(expired) + len(unneeded)}
	_, err = db.Transact(ctx, s.Writer, op, func(t *db.Tx) (struct{}, error) {
		for sql, nos := range map[string][]int64{sqlHide: expired, sqlForget: unneeded} {
			for _, no := range nos {
				if err := t.Prep(sql).Int(no).Exec(); err != nil {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, false, err
	}
	return blobs, true, nil
}

// BlobsInUse calls used with those keys that their file refers to. A key contains the id of its
// file.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error {
		for key, id := range ids {
			if _, err := c.Prep("SELECT 1 FROM files WHERE id = ? AND content_blob = ?").Text(id).Text(key).One(func(driver.Row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
