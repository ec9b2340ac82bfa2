package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"path"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed assets
var assetFiles embed.FS

// vendorFile lists the assets that are not ours, and noticesFile has their licences. Pages load
// neither.
const (
	vendorFile  = "vendor.json"
	noticesFile = "NOTICES.txt"
)

// asset is a file that pages load. Its address names its content, so it never changes.
type asset struct {
	plain, zipped []byte
	mediaType     string
}

// loadAssets returns the assets by the end of their addresses, and the addresses' ends by name.
func loadAssets() (map[string]asset, map[string]string) {
	assets, addresses := map[string]asset{}, map[string]string{}
	entries, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		panic(err) // embedded
	}
	for _, e := range entries {
		if e.Name() == vendorFile || e.Name() == noticesFile {
			continue
		}
		mediaType := mime.TypeByExtension(path.Ext(e.Name()))
		plain, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err) // embedded
		}
		var zipped bytes.Buffer
		w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			panic(err) // the level is constant
		}
		if _, err := w.Write(plain); err != nil {
			panic(err) // to memory
		}
		if err := w.Close(); err != nil {
			panic(err) // to memory
		}
		sum := sha256.Sum256(plain)
		address := hex.EncodeToString(sum[:8]) + "/" + e.Name()
		assets[address] = asset{plain, zipped.Bytes(), mediaType}
		addresses[e.Name()] = address
	}
	return assets, addresses
}

// serveAsset answers GET /assets/{hash}/{name}.
func (d *Dashboard) serveAsset(r *api.SurfaceRequest) error {
	a, ok := d.assets[r.PathValue("hash")+"/"+r.PathValue("name")]
	if !ok {
		return forebay.ErrNotFound
	}
	header := r.Writer.Header()
	header.Set("Content-Type", a.mediaType)
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("Vary", "Accept-Encoding")
	body := a.plain
	if kit.AcceptsGzip(r.Request) {
		header.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	_, err := r.Writer.Write(body)
	return err
}
