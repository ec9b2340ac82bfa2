// Package blob keeps payloads that are too large for the database (claim-check): in a local
// folder, S3 or Azure Blob, by a gocloud.dev URL. Keys are made by Forebay alone; a key never
// holds anything a client wrote.
//
// A payload is uploaded before the transaction that refers to it commits, and deleted after the
// transaction that forgets it. A crash in between leaves an orphan, never a dangling reference;
// [Store.Sweep] removes orphans.
package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forebayhq/forebay"
)

// Store holds payloads by key. It is safe for concurrent use. Its errors are fit for callers: the
// storage's own error, with its paths and addresses, is only in the chain.
type Store struct {
	backend backend
}

// backend is what differs between a local folder and an object store. Keys are already valid.
type backend interface {
	// put stores r to its end, durably, replacing what was there as a whole or not at all.
	put(ctx context.Context, key string, r io.Reader) error
	// get returns an error that is fs.ErrNotExist when there is no such key.
	get(ctx context.Context, key string) (io.ReadCloser, int64, error)
	// getFrom is get for what stands from an offset on.
	getFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// remove does nothing when there is no such key.
	remove(ctx context.Context, key string) error
	// walk visits every key last written before a time, in any order; visited keys may be removed
	// meanwhile.
	walk(ctx context.Context, before time.Time, visit func(key string) error) error
	close() error
}

// Open opens the store at a URL: file:///absolute/folder, file://./relative/folder, s3://bucket,
// azblob://container, or mem:// for tests. What holds no "://" is the path of a local folder. A
// missing folder is created, readable by its owner only. Parameters are gocloud.dev's, such as
// s3://bucket?region=eu-central-1&prefix=forebay/. No request is made: Check does that.
func Open(ctx context.Context, address string) (*Store, error) {
	bucketURL, folder, err := parse(address)
	switch {
	case err != nil:
		return nil, err
	case bucketURL == nil:
		return openFolder(folder)
	}
	b, err := openBucket(ctx, bucketURL)
	if err != nil {
		return nil, err
	}
	return &Store{backend: b}, nil
}

// CheckAddress says what is wrong with a store's address as such. It opens nothing.
func CheckAddress(address string) error {
	_, _, err := parse(address)
	return err
}

// schemes are those of URLs that Open knows.
var schemes = []string{"file", "s3", "azblob", "mem"}

// parse returns the URL of an object store, or else the path of a folder.
func parse(address string) (bucket *url.URL, folder string, err error) {
	if address == "" {
		return nil, "", forebay.Invalid("blob", "is empty")
	}
	if !strings.Contains(address, "://") {
		if scheme, _, named := strings.Cut(address, ":"); named && slices.Contains(schemes, scheme) { // s3:/bucket
			return nil, "", forebay.Invalid("blob", "is no URL: %s: is followed by two slashes", scheme)
		}
		return nil, address, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, "", forebay.Invalid("blob", "is not a valid URL").Caused(err)
	case !slices.Contains(schemes, u.Scheme):
		return nil, "", forebay.Invalid("blob", "has the scheme %.20q; known are file, s3, azblob and mem", u.Scheme)
	case u.Scheme == "file":
		folder, err = folderPath(u)
		return nil, folder, err
	}
	return u, "", nil
}

func openFolder(path string) (*Store, error) {
	f, err := newFolder(path)
	if err != nil {
		return nil, err
	}
	return &Store{backend: f}, nil
}

// Close releases the store. Readers from Get stay valid.
func (s *Store) Close() error { return s.backend.close() }

// Put stores exactly size bytes of r under the key, replacing what was there. Once it returns nil
// the payload survives a power cut. After an error the key holds its old payload or, rarely, the
// whole new one. An error of r itself is returned unchanged.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if size < 0 {
		return forebay.Errorf(forebay.CodeInternal, "a payload has a negative size")
	}
	src := &exactReader{ctx: ctx, r: r, left: size}
	err := s.backend.put(ctx, key, src)
	if src.err != nil {
		return src.err
	}
	return coded(ctx, "store payload", err)
}

// PutStream is Put for a payload of unknown size, and returns the size. It holds only a small
// buffer in memory. A payload of more than limit bytes is CodePayloadTooLarge, and nothing is
// stored.
func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, limit int64) (size int64, err error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	src := &streamReader{ctx: ctx, r: r, limit: limit}
	err = s.backend.put(ctx, key, src)
	if src.err != nil {
		return 0, src.err
	}
	return src.size, coded(ctx, "store payload", err)
}

// StreamBuffer is about how many bytes PutStream holds in memory.
func (s *Store) StreamBuffer() int64 {
	if _, ok := s.backend.(*bucket); ok {
		return partBytes
	}
	return 0 // less than any request has
}

// Get opens a payload and tells its size in bytes. The caller closes it. A missing one is
// CodeNotFound. Storage that is not there, or does not answer, is CodeUnavailable.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := checkKey(key); err != nil {
		return nil, 0, err
	}
	r, size, err := s.backend.get(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, forebay.ErrNotFound.Caused(fmt.Errorf("open payload: %w", err))
	}
	if err != nil {
		return nil, 0, coded(ctx, "open payload", err)
	}
	return &payload{ctx: ctx, ReadCloser: r}, size, nil
}

// GetFrom opens the part of a payload that begins at an offset, in bytes. The caller closes it.
func (s *Store) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	r, err := s.backend.getFrom(ctx, key, offset)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, forebay.ErrNotFound.Caused(fmt.Errorf("open payload: %w", err))
	}
	if err != nil {
		return nil, coded(ctx, "open payload", err)
	}
	return &payload{ctx: ctx, ReadCloser: r}, nil
}

// ReadAll returns a whole payload of at most limit bytes; a larger one is CodePayloadTooLarge.
func (s *Store) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	r, size, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > limit {
		return nil, forebay.Errorf(forebay.CodePayloadTooLarge, "the payload has %d bytes; the limit is %d", size, limit)
	}
	b := make([]byte, size)
	for read := 0; read < len(b) && err == nil; {
		var n int
		n, err = io.ReadFull(r, b[read:min(read+readPart, len(b))])
		read += n
		runtime.Gosched()
	}
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = coded(ctx, "read payload", fmt.Errorf("shorter than its %d bytes: %w", size, err))
		}
		return nil, err
	}
	return b, nil
}

// readPart is how many bytes ReadAll reads before it lets other goroutines run.
const readPart = 256 << 10

// Delete removes a payload. Removing what does not exist succeeds, so that it can be repeated. A
// power cut may bring a deleted payload back as an orphan.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return coded(ctx, "delete payload", s.backend.remove(ctx, key))
}

// sweepPage is how many keys Sweep asks about at once.
const sweepPage = 500

// maxFailures is how many payloads in a row cannot be removed when Sweep holds the storage to
// blame.
const maxFailures = 8

// Sweep removes payloads last written before olderThan that nothing refers to. keep gets a page of
// keys and returns those that must stay; an error of keep ends the sweep with nothing of that page
// removed. One that cannot be removed keeps no other: its error comes last. olderThan must lie
// further back than the longest time between an upload and the commit of its transaction. What
// Forebay did not write is never touched.
func (s *Store) Sweep(ctx context.Context, olderThan time.Time, keep func(keys []string) (map[string]bool, error)) (removed int, err error) {
	page := make([]string, 0, sweepPage)
	var failed error
	inRow := 0
	sweep := func() error {
		if len(page) == 0 {
			return nil
		}
		kept, err := keep(page)
		if err != nil {
			return fmt.Errorf("look up payload references: %w", err)
		}
		for _, key := range page {
			if kept[key] {
				continue
			}
			if err := s.backend.remove(ctx, key); err != nil {
				failed = coded(ctx, "delete orphan payload", err)
				if inRow++; inRow == maxFailures || ctx.Err() != nil {
					return failed
				}
				continue
			}
			inRow = 0
			removed++
		}
		page = make([]string, 0, sweepPage) // keep may hold on to the old one
		return nil
	}
	var stopped error
	err = s.backend.walk(ctx, olderThan, func(key string) error {
		if page = append(page, key); len(page) < sweepPage {
			return nil
		}
		stopped = sweep()
		return stopped
	})
	if stopped != nil {
		return removed, stopped
	}
	if err != nil {
		return removed, coded(ctx, "list payloads", err)
	}
	if err := sweep(); err != nil {
		return removed, err
	}
	return removed, failed
}

// Check writes, reads and deletes a small payload, and returns why that fails.
func (s *Store) Check(ctx context.Context) error {
	probe := rand.Text()
	key := Key(0, "probe", probe)
	if err := s.Put(ctx, key, strings.NewReader(probe), int64(len(probe))); err != nil {
		return err
	}
	got, err := s.ReadAll(ctx, key, int64(len(probe)))
	// The probe is deleted in any case. If that fails, Sweep removes it later.
	deleted := s.Delete(context.WithoutCancel(ctx), key)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, []byte(probe)):
		return forebay.Errorf(forebay.CodeUnavailable, "the payload storage returned other bytes than were stored")
	}
	return deleted
}

// coded turns a storage error into one that callers may see, keeping it in the chain for the log.
func coded(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	cause := fmt.Errorf("%s: %w", doing, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return forebay.Errorf(forebay.CodeStorageFull, "the payload storage is full").Caused(cause)
	}
	return forebay.Errorf(forebay.CodeUnavailable, "the payload storage is not available").Caused(cause)
}

// exactReader yields exactly left bytes of r, or fails. It remembers r's failure, which is the
// caller's own and not the storage's.
type exactReader struct {
	ctx  context.Context
	r    io.Reader
	left int64
	err  error
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if err := e.ctx.Err(); err != nil {
		return 0, e.fail(fmt.Errorf("store payload: %w", err))
	}
	if e.left == 0 {
		return 0, e.end()
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	switch {
	case err == nil || (errors.Is(err, io.EOF) && e.left == 0):
		return n, nil
	case errors.Is(err, io.EOF):
		return n, e.fail(forebay.Errorf(forebay.CodeInvalidRequest, "the payload ends %d bytes before its announced size", e.left))
	}
	return n, e.fail(err)
}

// end returns io.EOF if r has ended as well.
func (e *exactReader) end() error {
	var one [1]byte
	for {
		n, err := e.r.Read(one[:])
		switch {
		case n > 0:
			return e.fail(forebay.Errorf(forebay.CodeInvalidRequest, "the payload is longer than its announced size"))
		case errors.Is(err, io.EOF):
			return io.EOF
		case err != nil:
			return e.fail(err)
		}
	}
}

func (e *exactReader) fail(err error) error {
	e.err = err
	return err
}

// streamReader yields r up to its limit, or fails. It remembers r's failure as exactReader does.
type streamReader struct {
	ctx         context.Context
	r           io.Reader
	limit, size int64
	err         error
}

func (s *streamReader) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if err := s.ctx.Err(); err != nil {
		s.err = fmt.Errorf("store payload: %w", err)
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if s.size += int64(n); s.size > s.limit {
		s.err = forebay.Errorf(forebay.CodePayloadTooLarge, "the payload has more than %d bytes", s.limit)
		return 0, s.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// payload gives each read error a code.
type payload struct {
	ctx context.Context
	io.ReadCloser
}

func (p *payload) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = coded(p.ctx, "read payload", err)
	}
	return n, err
}

func (p *payload) Close() error {
	return coded(p.ctx, "close payload", p.ReadCloser.Close())
}
