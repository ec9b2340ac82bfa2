package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/forebayhq/forebay"
)

// Source is read-only storage of somebody else: s3://bucket, azblob://container or
// file:///folder, with gocloud.dev's parameters. Links in a folder cannot lead outside it.
type Source struct {
	root   *os.Root
	bucket *bucket
}

// OpenSource opens a source. No request is made.
func OpenSource(ctx context.Context, address string) (*Source, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, forebay.Invalid("url", "is not a valid URL")
	}
	switch u.Scheme {
	case "file":
		folder, err := folderPath(u)
		if err != nil {
			return nil, err
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, forebay.Invalid("url", "the folder cannot be opened").Caused(err)
		}
		return &Source{root: root}, nil
	case "s3", "azblob", "mem":
		b, err := openBucket(ctx, u)
		if err != nil {
			return nil, err
		}
		return &Source{bucket: b}, nil
	}
	return nil, forebay.Invalid("url", "has the scheme %.20q; known are file, s3 and azblob", u.Scheme)
}

// Open opens an object. contentType is "" if unknown. The caller closes r.
func (s *Source) Open(ctx context.Context, key string) (r io.ReadCloser, contentType string, err error) {
	r, contentType, err = s.open(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", forebay.Errorf(forebay.CodeNotFound, "there is no such object in the storage").Caused(err)
	}
	if err != nil {
		return nil, "", coded(ctx, "open object", err)
	}
	return &payload{ctx: ctx, ReadCloser: r}, contentType, nil
}

func (s *Source) open(ctx context.Context, key string) (io.ReadCloser, string, error) {
	if s.root == nil {
		ctx, watch := s.bucket.watch(ctx)
		r, err := s.bucket.NewReader(ctx, key, nil)
		content, err := opened(r, err, watch)
		if err != nil {
			return nil, "", err
		}
		return content, strings.TrimSuffix(r.ContentType(), "application/octet-stream"), nil
	}
	f, _, err := openRegular(s.root, key)
	if err != nil { // also of a link that leads outside
		return nil, "", fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return f, "", nil
}

// Close releases the source.
func (s *Source) Close() error {
	if s.root != nil {
		return s.root.Close()
	}
	return s.bucket.close()
}
