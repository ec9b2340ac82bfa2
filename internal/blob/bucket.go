package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/memblob" // registers mem://
	"gocloud.dev/gcerrors"

	"github.com/forebayhq/forebay"
)

// bucket keeps payloads in an object store, which is durable when it acknowledges. Parts of an
// upload that a crash interrupted are the bucket's to expire, by a lifecycle rule.
type bucket struct {
	*blob.Bucket
	silence time.Duration // const silence, except in tests
}

// One part of 5 MiB, S3's smallest, is buffered per upload; the drivers' defaults would hold five
// or more of up to 8 MiB each.
const partBytes = 5 << 20

func openBucket(ctx context.Context, u *url.URL) (*bucket, error) {
	if u.Host == "" && u.Scheme != "mem" {
		return nil, forebay.Invalid("blob", "names no bucket or container")
	}
	b, err := blob.DefaultURLMux().OpenBucketURL(ctx, u)
	if err != nil {
		return nil, forebay.Invalid("blob", "the %s URL cannot be used: %v", u.Scheme, err).Caused(err)
	}
	return &bucket{b, silence}, nil
}

// silence is for how long storage may say nothing before a request is given up. The drivers wait
// for ever, and who waits with them holds a place that others need.
const silence = 30 * time.Second

// missing reports whether the storage says that it has no such object. The drivers also call it
// "not found" if a bucket is not there, or if no name server knows the storage. Objects are there
// again when that is over.
func missing(err error) bool {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	if azure, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return azure.ErrorCode == "BlobNotFound"
	}
	if s3, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		return s3.ErrorCode() != "NoSuchBucket"
	}
	_, network := errors.AsType[net.Error](err)
	return !network
}

// reader reads an object, and gives up when the storage says nothing for too long.
type reader struct {
	io.ReadCloser
	watch *watch
}

func (r *reader) Read(p []byte) (int, error) {
	r.watch.begin()
	defer r.watch.end()
	return r.ReadCloser.Read(p)
}

func (r *reader) Close() error {
	defer r.watch.stop()
	return r.ReadCloser.Close()
}

// watch ends a context when the storage says nothing for too long.
type watch struct {
	stop  context.CancelFunc
	timer *time.Timer
	limit time.Duration
}

func (b *bucket) watch(ctx context.Context) (context.Context, *watch) {
	ctx, stop := context.WithCancel(ctx)
	return ctx, &watch{stop, time.AfterFunc(b.silence, stop), b.silence}
}

func (w *watch) begin() { w.timer.Reset(w.limit) }
func (w *watch) end()   { w.timer.Stop() }

// opened returns a reader, or the error of opening it.
func opened(r *blob.Reader, err error, w *watch) (io.ReadCloser, error) {
	w.end()
	if err == nil {
		return &reader{r, w}, nil
	}
	w.stop()
	if missing(err) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return nil, err
}

func (b *bucket) close() error { return b.Close() }

func (b *bucket) put(ctx context.Context, key string, r io.Reader) error {
	ctx, watch := b.watch(ctx)
	defer watch.stop()
	defer watch.end()
	watch.limit *= 4 // a write may wait until a part of partBytes has arrived
	w, err := b.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType:    "application/octet-stream",
		BufferSize:     partBytes,
		MaxConcurrency: 1,
	})
	if err != nil {
		return err
	}
	watch.end() // r may take its time
	if _, err := io.Copy(&writer{w, watch}, r); err != nil {
		watch.stop() // so that Close gives the upload up instead of completing it
		return errors.Join(err, w.Close())
	}
	watch.begin()
	return w.Close()
}

// writer writes an object, and gives up when the storage takes nothing for too long.
type writer struct {
	w     io.Writer
	watch *watch
}

func (w *writer) Write(p []byte) (int, error) {
	w.watch.begin()
	defer w.watch.end()
	return w.w.Write(p)
}

func (b *bucket) get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	ctx, watch := b.watch(ctx)
	r, err := b.NewReader(ctx, key, nil)
	content, err := opened(r, err, watch)
	if err != nil {
		return nil, 0, err
	}
	return content, r.Size(), nil
}

func (b *bucket) getFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	ctx, watch := b.watch(ctx)
	r, err := b.NewRangeReader(ctx, key, offset, -1, nil)
	return opened(r, err, watch)
}

func (b *bucket) remove(ctx context.Context, key string) error {
	ctx, watch := b.watch(ctx)
	defer watch.stop()
	defer watch.end()
	if err := b.Delete(ctx, key); err != nil && !missing(err) {
		return err
	}
	return nil
}

func (b *bucket) walk(ctx context.Context, before time.Time, visit func(key string) error) error {
	ctx, watch := b.watch(ctx)
	defer watch.stop()
	defer watch.end()
	it := b.List(&blob.ListOptions{Prefix: keyPrefix})
	for {
		watch.begin()
		object, err := it.Next(ctx)
		watch.end()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if object.IsDir || !ValidKey(object.Key) || !object.ModTime.Before(before) {
			continue
		}
		if err := visit(object.Key); err != nil {
			return err
		}
	}
}
