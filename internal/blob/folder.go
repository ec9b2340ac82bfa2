package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/forebayhq/forebay"
)

// folder keeps each payload in one file of one local folder. It exists beside gocloud's fileblob
// because that one never calls fsync: a payload it acknowledged may be empty after a power cut.
//
// The folder is flat, a key's slashes being dots in the file name (keys hold no dots). So no
// folder is ever made or removed beside a write, and one fsync of one folder makes a new entry
// durable.
type folder struct {
	root *os.Root
	// sync is (*os.File).Sync, except in tests.
	sync func(*os.File) error
}

// unfinished begins the name of a file that is being written. No key's file name begins with a
// dot.
const unfinished = ".unfinished-"

// folderPath returns the path in a file URL: file:///absolute or file://./relative.
func folderPath(u *url.URL) (string, error) {
	switch {
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", forebay.Invalid("blob", "is a file URL, which takes no parameters")
	case u.Path == "" || u.Path == "/":
		return "", forebay.Invalid("blob", "names no folder")
	case u.Host == "" || u.Host == "localhost":
		return filepath.FromSlash(u.Path), nil
	case u.Host == ".":
		return filepath.FromSlash("." + u.Path), nil
	}
	return "", forebay.Invalid("blob", "is a file URL on another host; write file:///absolute/folder or file://./relative/folder")
}

func newFolder(path string) (*folder, error) {
	f := &folder{sync: (*os.File).Sync}
	if err := f.make(filepath.Clean(path)); err != nil {
		return nil, unusable(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, unusable(err)
	}
	f.root = root
	tighten(path, root)
	return f, nil
}

// tighten closes a folder that an older version created to everyone but its owner. A folder of
// another name may be shared on purpose.
func tighten(path string, root *os.Root) {
	const defaultEnd = ".blobs"
	info, err := root.Stat(".")
	if err == nil && strings.HasSuffix(filepath.Base(filepath.Clean(path)), defaultEnd) && info.Mode().Perm()&0o077 != 0 {
		_ = root.Chmod(".", info.Mode().Perm()&0o700) // another's is left as it is; its files are for their owner only anyway
	}
}

// unusable tells the operator the reason, without the path that came with it.
func unusable(err error) error {
	reason := err
	var at *fs.PathError
	if errors.As(err, &at) {
		reason = at.Err
	}
	return forebay.Invalid("blob", "the folder cannot be used: %v", reason).Caused(err)
}

// make creates the folder and its missing parents, each entry durable before the next is made. A
// parent may be there and lead nowhere: a link, or a working folder that was removed.
func (f *folder) make(path string) error {
	parent := filepath.Dir(path)
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := f.make(parent); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // OpenRoot tells if it is no folder
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(parent)
	if err != nil {
		return err
	}
	return f.syncFolder(dir)
}

func (f *folder) close() error { return f.root.Close() }

func fileName(key string) string { return strings.ReplaceAll(key, "/", ".") }

func (f *folder) put(_ context.Context, key string, r io.Reader) (err error) {
	temp := unfinished + rand.Text()
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.root.Remove(temp) // gone already if only the folder's sync failed
		}
	}()
	if err := f.fill(file, r); err != nil {
		return err
	}
	if err := f.root.Rename(temp, fileName(key)); err != nil {
		return err
	}
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	return f.syncFolder(dir)
}

// syncBytes is how much of a payload is written before it is synced. A commit of a database on
// the same disk waits for unsynced data.
const syncBytes = 4 << 20

// fill writes r to the file, syncs and closes it. The data must be on disk before the rename: else
// a power cut could leave the final name with nothing behind it.
func (f *folder) fill(file *os.File, r io.Reader) error {
	for {
		_, err := io.CopyN(file, r, syncBytes)
		over := errors.Is(err, io.EOF)
		if over {
			err = nil
		}
		if err == nil {
			err = f.sync(file)
		}
		if over || err != nil {
			return errors.Join(err, file.Close())
		}
	}
}

// syncFolder makes the entries of an open folder durable and closes it.
func (f *folder) syncFolder(dir *os.File) error {
	var err error
	if runtime.GOOS != "windows" { // where a folder cannot be synced; NTFS journals its entries
		err = f.sync(dir)
	}
	return errors.Join(err, dir.Close())
}

func (f *folder) get(_ context.Context, key string) (io.ReadCloser, int64, error) {
	file, size, err := openRegular(f.root, fileName(key))
	if err != nil {
		return nil, 0, err
	}
	return file, size, nil
}

func (f *folder) getFrom(_ context.Context, key string, offset int64) (io.ReadCloser, error) {
	r, _, err := openRegular(f.root, fileName(key))
	if err != nil {
		return nil, err
	}
	if _, err := r.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// openRegular opens a regular file. Opening a FIFO without O_NONBLOCK would wait for a writer,
// and no context could end that.
func openRegular(root *os.Root, name string) (_ *os.File, size int64, err error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (f *folder) remove(_ context.Context, key string) error {
	err := f.root.Remove(fileName(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// walk also removes files that a crash left unfinished.
func (f *folder) walk(ctx context.Context, before time.Time, visit func(key string) error) error {
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(sweepPage)
		for _, entry := range entries {
			if err := f.visit(ctx, entry, before, visit); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *folder) visit(ctx context.Context, entry fs.DirEntry, before time.Time, visit func(key string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key := strings.ReplaceAll(entry.Name(), ".", "/")
	left := strings.HasPrefix(entry.Name(), unfinished)
	if !entry.Type().IsRegular() || (!left && !ValidKey(key)) {
		return nil
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil || !info.ModTime().Before(before) {
		return err
	}
	if left {
		if err := f.root.Remove(entry.Name()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return visit(key)
}
