package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// maxManifest is far more than the checksums of all tables need.
const maxManifest = 1 << 20

// Check reads a whole backup and compares it with its checksums. It writes nothing.
func Check(ctx context.Context, folder string, progress func(Progress)) (Manifest, error) {
	m, err := open(folder)
	if err != nil {
		return m, err
	}
	payloads, err := openPayloads(ctx, folder)
	if err != nil {
		return m, err
	}
	defer payloads.Close()
	return m, eachPayload(folder, m, func(done int64, p payload) error {
		progress(Progress{"checking payloads", done})
		return p.check(sumPayload(ctx, payloads, p.key, io.Discard))
	})
}

// Restore restores a backup into an empty database of either kind and into a blob storage. No
// server may run on them. If it was interrupted, another call continues where it stopped. Until
// it is done no server runs on the database. A backup of an older schema is migrated on the way,
// in a copy beside the temporary files.
func Restore(ctx context.Context, folder string, to db.Options, blobs *blob.Store, progress func(Progress)) (Manifest, error) {
	m, err := open(folder)
	if err != nil {
		return m, err
	}
	payloads, err := openPayloads(ctx, folder)
	if err != nil {
		return m, err
	}
	defer payloads.Close()
	database := filepath.Join(folder, databaseFile)
	if m.Schema < schema.Latest() {
		work, err := os.MkdirTemp("", "forebay-restore-")
		if err != nil {
			return m, unusable("there is no room for temporary files", err)
		}
		defer os.RemoveAll(work)
		if database, err = migrated(ctx, database, work); err != nil {
			return m, err
		}
	}
	s, err := db.OpenSnapshot(ctx, db.Options{Path: database})
	if err != nil {
		return m, err
	}
	defer s.Close()
	bring := func() error {
		return eachPayload(folder, m, func(done int64, p payload) error {
			progress(Progress{"restoring payloads", done})
			return p.bring(ctx, payloads, blobs)
		})
	}
	_, err = s.CopyTo(ctx, to, bring, func(p db.CopyProgress) { progress(ofTable(p)) })
	return m, aboutDatabase(err)
}

// aboutDatabase says of an error about the target of a copy that it is about the database.
func aboutDatabase(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) && known.Field == "to" {
		e := *known
		e.Field = "database"
		return &e
	}
	return err
}

// open reads the manifest of a backup and checks the database and the list of payloads against
// it.
func open(folder string) (m Manifest, err error) {
	f, err := os.Open(filepath.Join(folder, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, forebay.Errorf(forebay.CodeNotFound, "there is no complete backup in that folder: it has no %s", manifestFile)
	}
	if err != nil {
		return m, unusable("the backup cannot be read", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return m, unusable("the backup cannot be read", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, unusable(manifestFile+" is not that of a backup", err)
	}
	if m.Format != formatVersion {
		return m, forebay.Errorf(forebay.CodeNotSupported, "the backup has the format %d; this Forebay knows %d", m.Format, formatVersion)
	}
	if err := db.RefuseBackup(m.Schema); err != nil {
		return m, err
	}
	for name, want := range map[string]string{databaseFile: m.DatabaseSHA256, payloadsFile: m.PayloadsSHA256} {
		sum, _, err := sumFile(filepath.Join(folder, name))
		if err != nil {
			return m, err
		}
		if sum != want {
			return m, damaged(name)
		}
	}
	return m, nil
}

func damaged(what string) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "the backup is damaged: %s is not what was written", what)
}

func openPayloads(ctx context.Context, folder string) (*blob.Store, error) {
	if _, err := os.Stat(filepath.Join(folder, payloadsFolder)); err != nil {
		return nil, unusable("the backup has no folder "+payloadsFolder, err)
	}
	return blob.Open(ctx, filepath.Join(folder, payloadsFolder))
}

// migrated copies a database of an older schema and migrates the copy.
func migrated(ctx context.Context, database, work string) (string, error) {
	from, err := os.Open(database)
	if err != nil {
		return "", unusable("the backup cannot be read", err)
	}
	defer from.Close()
	path := filepath.Join(work, databaseFile)
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", unusable("there is no room for temporary files", err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return "", unusable("there is no room for temporary files", err)
	}
	// Nothing is served: an interrupted restore goes on only if the copy is the same again.
	d, err := db.Open(ctx, db.Options{Path: path, Existing: true})
	if err != nil {
		return "", err
	}
	return path, d.Close()
}

// payload is a line of payloads.txt.
type payload struct {
	sum  string
	size int64
	key  string
}

// eachPayload reads the list, whose checksum was already compared.
func eachPayload(folder string, m Manifest, visit func(done int64, p payload) error) error {
	f, err := os.Open(filepath.Join(folder, payloadsFile))
	if err != nil {
		return unusable("the backup cannot be read", err)
	}
	defer f.Close()
	done := int64(0)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || len(fields[0]) != 2*sha256.Size {
			return damaged(payloadsFile)
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return damaged(payloadsFile)
		}
		done++
		if err := visit(done, payload{fields[0], size, fields[2]}); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return unusable("the backup cannot be read", err)
	}
	if done != m.Payloads {
		return damaged(payloadsFile)
	}
	return nil
}

func (p payload) check(sum string, size int64, err error) error {
	if errors.Is(err, forebay.ErrNotFound) || err == nil && (sum != p.sum || size != p.size) {
		return damaged("the payload " + p.key)
	}
	return err
}

// bring stores a payload of the backup. It reads the payload twice, so that a damaged one is
// never stored.
func (p payload) bring(ctx context.Context, from, to *blob.Store) error {
	if err := p.check(sumPayload(ctx, from, p.key, io.Discard)); err != nil {
		return err
	}
	r, size, err := from.Get(ctx, p.key)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := to.Put(ctx, p.key, r, size); err != nil {
		return fmt.Errorf("restore payload: %w", err)
	}
	return nil
}
