package documents

import (
	"context"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
)

// Source is a blob storage from which documents may be added by their URL.
type Source struct {
	URL     string // without parameters: what the URLs of its documents begin with
	Bucket  *blob.Source
	Tenants []string // if not empty, only these may
}

// open opens a document in the source that its URL belongs to. The caller closes it.
func (s *Service) open(ctx context.Context, tenant, address string) (content io.ReadCloser, contentType, name string, err error) {
	if !forebay.ValidText(address, forebay.MaxDocumentURLBytes) {
		return nil, "", "", forebay.Invalid("url", "must be 1 to %d bytes of text without control characters", forebay.MaxDocumentURLBytes)
	}
	for _, source := range s.Sources {
		key, below := strings.CutPrefix(address, strings.TrimSuffix(source.URL, "/")+"/")
		if !below || len(source.Tenants) > 0 && !slices.Contains(source.Tenants, tenant) {
			continue
		}
		if key, err = url.PathUnescape(key); err != nil || key == "" || path.Clean("/"+key) != "/"+key {
			return nil, "", "", forebay.Invalid("url", "does not name an object")
		}
		content, contentType, err = source.Bucket.Open(ctx, key)
		return content, contentType, path.Base(key), err
	}
	return nil, "", "", forebay.Invalid("url", "is not below a source of documents that is configured for this tenant")
}
