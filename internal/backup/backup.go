// Package backup copies a database and its payloads, as they are at one moment, into a folder, and
// restores them.
//
// The folder holds:
//
//	backup.json   the manifest with checksums; written last, so a backup without it is incomplete
//	forebay.db    the database, as a SQLite file, whichever kind it was copied from
//	payloads/     the blob storage's payloads that the database refers to, a file each
//	payloads.txt  one line a payload: the SHA-256, the size in bytes and the key
package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// Names in the folder of a backup.
const (
	manifestFile   = "backup.json"
	databaseFile   = "forebay.db"
	payloadsFolder = "payloads"
	payloadsFile   = "payloads.txt"
)

// formatVersion is the version of the folder's layout.
const formatVersion = 1

// Manifest tells what a backup holds.
type Manifest struct {
	Format         int              `json:"format"`
	Program        string           `json:"program"` // the version of Forebay that made it
	Schema         int64            `json:"schema"`
	TakenAt        time.Time        `json:"taken_at"` // the moment that it shows
	DatabaseBytes  int64            `json:"database_bytes"`
	DatabaseSHA256 string           `json:"database_sha256"`
	Rows           int64            `json:"rows"`
	Tables         []db.CopiedTable `json:"tables"`
	Payloads       int64            `json:"payloads"`
	PayloadBytes   int64            `json:"payload_bytes"`
	PayloadsSHA256 string           `json:"payloads_sha256"` // of payloads.txt
}

// Progress is how far a backup or a restore has come.
type Progress struct {
	What string // what is done now, such as "copying jobs"
	Done int64  // so many rows or payloads of it
}

// Source is what is backed up.
type Source struct {
	Database db.Options
	Payloads *blob.Store
	Program  string // the version of this Forebay
}

// tries is how often a snapshot is taken again because retention deleted a payload before it was
// copied. From the second try on only newer payloads are copied, which takes moments.
const tries = 5

// Make creates a backup in a folder that does not exist yet or is empty. Servers may keep
// working. If it fails or is interrupted it leaves no folder of that name.
func Make(ctx context.Context, from Source, folder string, progress func(Progress)) (m Manifest, err error) {
	if err := refuseUsed(folder); err != nil {
		return m, err
	}
	parent := filepath.Dir(filepath.Clean(folder))
	work, err := os.MkdirTemp(parent, "."+filepath.Base(folder)+"-unfinished-") // 0700
	if err != nil {
		return m, unusable("the folder of the backup cannot be made", err)
	}
	defer os.RemoveAll(work)
	payloads, err := blob.Open(ctx, filepath.Join(work, payloadsFolder))
	if err != nil {
		return m, err
	}
	defer payloads.Close()
	b := &making{from: from, work: work, payloads: payloads, progress: progress, kept: map[[sha256.Size]byte]bool{}}
	if m, err = b.run(ctx); err != nil {
		return m, err
	}
	if err := b.finish(m); err != nil {
		return m, err
	}
	_ = os.Remove(folder) // an empty one
	if err := os.Rename(work, folder); err != nil {
		return m, unusable("the backup cannot be given its name", err)
	}
	return m, syncPath(parent)
}

// refuseUsed refuses a folder that is not empty.
func refuseUsed(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unusable("the folder for the backup cannot be read", err)
	case len(entries) > 0:
		return forebay.Errorf(forebay.CodeConflict, "the folder for the backup is not empty; name a new one")
	}
	return nil
}

// making is a backup under way.
type making struct {
	from     Source
	work     string
	payloads *blob.Store
	progress func(Progress)
	kept     map[[sha256.Size]byte]bool // hashes of the keys that are copied
}

func (b *making) run(ctx context.Context) (m Manifest, err error) {
	// The first pass holds no snapshot open, because copying many payloads may take hours.
	missing, err := b.firstPayloads(ctx)
	for try := 0; err == nil && try < tries; try++ {
		var report db.CopyReport
		var taken time.Time
		report, taken, missing, err = b.snapshot(ctx)
		if err != nil || missing > 0 {
			continue
		}
		m = Manifest{
			Format: formatVersion, Program: b.from.Program, Schema: schema.Latest(), TakenAt: taken.UTC().Truncate(time.Millisecond),
			Rows: report.Rows, Tables: report.Tables,
		}
		return m, b.describe(ctx, &m)
	}
	if err == nil {
		err = forebay.Errorf(forebay.CodeConflict, "%d payloads of the database are not in the blob storage; is \"blob\" configured as for the server?", missing)
	}
	return m, err
}

// firstPayloads copies the payloads that the database refers to now.
func (b *making) firstPayloads(ctx context.Context) (missing int64, err error) {
	s, err := db.OpenSnapshot(ctx, b.from.Database)
	if err != nil {
		return 0, err
	}
	list, err := os.CreateTemp(b.work, "keys-")
	if err != nil {
		s.Close()
		return 0, unusable("the backup cannot be written", err)
	}
	defer os.Remove(list.Name())
	defer list.Close()
	keys := bufio.NewWriter(list)
	err = s.Payloads(ctx, func(key string) error { _, err := fmt.Fprintln(keys, key); return err })
	s.Close()
	if err == nil {
		err = keys.Flush()
	}
	if err == nil {
		_, err = list.Seek(0, io.SeekStart)
	}
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		found, err := b.payload(ctx, lines.Text())
		if err != nil {
			return 0, err
		}
		if !found {
			missing++
		}
	}
	return missing, nil
}

// snapshot takes a snapshot and copies it, unless some of its payloads are missing.
func (b *making) snapshot(ctx context.Context) (report db.CopyReport, taken time.Time, missing int64, err error) {
	s, err := db.OpenSnapshot(ctx, b.from.Database)
	if err != nil {
		return report, taken, 0, err
	}
	defer s.Close()
	taken = time.Now()
	err = s.Payloads(ctx, func(key string) error {
		found, err := b.payload(ctx, key)
		if err == nil && !found {
			missing++
		}
		return err
	})
	if err != nil || missing > 0 {
		return report, taken, missing, err
	}
	to := db.Options{Path: filepath.Join(b.work, databaseFile)}
	report, err = s.CopyTo(ctx, to, func() error { return nil }, func(p db.CopyProgress) { b.progress(ofTable(p)) })
	return report, taken, 0, err
}

func ofTable(p db.CopyProgress) Progress {
	if p.Verifying {
		return Progress{"comparing " + p.Table, p.Rows}
	}
	return Progress{"copying " + p.Table, p.Rows}
}

// payload copies a payload, once. found is false when the storage does not have it.
func (b *making) payload(ctx context.Context, key string) (found bool, err error) {
	id := sha256.Sum256([]byte(key))
	if b.kept[id] {
		return true, nil
	}
	r, size, err := b.from.Payloads.Get(ctx, key)
	if errors.Is(err, forebay.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	if err := b.payloads.Put(ctx, key, r, size); err != nil {
		return false, err
	}
	b.kept[id] = true
	b.progress(Progress{"copying payloads", int64(len(b.kept))})
	return true, nil
}

// describe completes the files of a backup. It reads them back from the disk for their checksums.
func (b *making) describe(ctx context.Context, m *Manifest) error {
	database := filepath.Join(b.work, databaseFile)
	if err := db.OneFile(database); err != nil {
		return err
	}
	if err := db.CheckFile(ctx, database); err != nil {
		return err
	}
	wanted := map[[sha256.Size]byte]bool{}
	list, err := os.OpenFile(filepath.Join(b.work, payloadsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unusable("the backup cannot be written", err)
	}
	defer list.Close()
	lines := bufio.NewWriter(list)
	s, err := db.OpenSnapshot(ctx, db.Options{Path: database})
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.Payloads(ctx, func(key string) error {
		id := sha256.Sum256([]byte(key))
		if wanted[id] {
			return nil
		}
		wanted[id] = true
		sum, size, err := sumPayload(ctx, b.payloads, key, io.Discard)
		if err != nil {
			return err
		}
		m.Payloads, m.PayloadBytes = m.Payloads+1, m.PayloadBytes+size
		b.progress(Progress{"reading payloads back", m.Payloads})
		_, err = fmt.Fprintln(lines, sum, size, key)
		return err
	})
	if err == nil {
		err = errors.Join(lines.Flush(), list.Sync())
	}
	if err != nil {
		return err
	}
	// The last snapshot lacks jobs that were purged before it. Remove their payloads.
	_, err = b.payloads.Sweep(ctx, time.Now().Add(time.Hour), func(keys []string) (map[string]bool, error) {
		keep := map[string]bool{}
		for _, key := range keys {
			keep[key] = wanted[sha256.Sum256([]byte(key))]
		}
		return keep, nil
	})
	if err != nil {
		return err
	}
	if m.PayloadsSHA256, _, err = sumFile(filepath.Join(b.work, payloadsFile)); err != nil {
		return err
	}
	m.DatabaseSHA256, m.DatabaseBytes, err = sumFile(database)
	return err
}

// finish writes the manifest, durably.
func (b *making) finish(m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(b.work, manifestFile)
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return unusable("the backup cannot be written", err)
	}
	for _, name := range []string{manifestFile, databaseFile, "."} {
		if err := syncPath(filepath.Join(b.work, name)); err != nil {
			return err
		}
	}
	return nil
}

// sumPayload copies a payload to w and returns its checksum and size.
func sumPayload(ctx context.Context, from *blob.Store, key string, w io.Writer) (sum string, size int64, err error) {
	r, _, err := from.Get(ctx, key)
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	return sumOf(io.TeeReader(r, w))
}

func sumFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, unusable("the backup cannot be read", err)
	}
	defer f.Close()
	sum, size, err = sumOf(f)
	if err != nil {
		return "", 0, unusable("the backup cannot be read", err)
	}
	return sum, size, nil
}

func sumOf(r io.Reader) (string, int64, error) {
	h := sha256.New()
	size, err := io.Copy(h, r)
	return hexOf(h), size, err
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func unusable(message string, err error) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", message).Caused(err)
}
