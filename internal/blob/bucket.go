package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // registers azblob://
	_ "gocloud.dev/blob/memblob"   // registers mem://
	_ "gocloud.dev/blob/s3blob"    // registers s3://
	"gocloud.dev/gcerrors"

	"github.com/forebayhq/forebay"
)

// bucket keeps payloads in an object store, which is durable when it acknowledges. Parts of an
// upload that a crash interrupted are the bucket's to expire, by a lifecycle rule.
type bucket struct {
	*blob.Bucket
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
	return &bucket{b}, nil
}

func (b *bucket) close() error { return b.Close() }

func (b *bucket) put(ctx context.Context, key string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType:    "application/octet-stream",
		BufferSize:     partBytes,
		MaxConcurrency: 1,
	})
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		cancel() // so that Close gives the upload up instead of completing it
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

func (b *bucket) get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	r, err := b.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, 0, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.Size(), nil
}

func (b *bucket) getFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	r, err := b.NewRangeReader(ctx, key, offset, -1, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return r, err
}

func (b *bucket) remove(ctx context.Context, key string) error {
	err := b.Delete(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return err
}

func (b *bucket) walk(ctx context.Context, before time.Time, visit func(key string) error) error {
	it := b.List(&blob.ListOptions{Prefix: keyPrefix})
	for {
		object, err := it.Next(ctx)
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
