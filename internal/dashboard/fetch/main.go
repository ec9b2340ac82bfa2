// Command fetch fetches the assets that are not ours from the npm registry, as a vendor.json lists
// them. A package or a file with another hash than the list's ends it, and nothing is written.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
)

// source says where an asset comes from.
type source struct {
	File      string `json:"file"` // beside the list
	Package   string `json:"package"`
	Version   string `json:"version"`
	Path      string `json:"path"`      // in the package
	Integrity string `json:"integrity"` // of the package, as the registry names it
	SHA256    string `json:"sha256"`    // of the file, in hexadecimal
}

func main() {
	list := flag.String("list", "internal/dashboard/assets/vendor.json", "the list of assets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *list); err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var sources []source
	if err := json.Unmarshal(text, &sources); err != nil {
		return fmt.Errorf("read %s: %w", list, err)
	}
	files := make([][]byte, len(sources))
	for i, s := range sources {
		if files[i], err = s.fetch(ctx); err != nil {
			return fmt.Errorf("%s %s: %w", s.Package, s.Version, err)
		}
	}
	for i, s := range sources {
		target := filepath.Join(filepath.Dir(list), s.File)
		old, err := os.ReadFile(target)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		state := "unchanged"
		if !bytes.Equal(old, files[i]) {
			state = "written"
			if err := os.WriteFile(target, files[i], 0o644); err != nil {
				return err
			}
		}
		fmt.Printf("%s of %s %s: %s\n", s.File, s.Package, s.Version, state)
	}
	return nil
}

// fetch returns the file, by npm, which knows the registry and the proxies of this machine.
func (s source) fetch(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "forebay-assets-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pack := exec.CommandContext(ctx, "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir, s.Package+"@"+s.Version)
	pack.Dir, pack.Stderr = dir, os.Stderr
	if err := pack.Run(); err != nil {
		return nil, fmt.Errorf("npm pack: %w", err)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		return nil, fmt.Errorf("npm wrote %d packages: %w", len(packages), err)
	}
	archive, err := os.ReadFile(packages[0])
	if err != nil {
		return nil, err
	}
	return s.take(archive)
}

// maxFile is the largest asset, in bytes.
const maxFile = 4 << 20

// take returns the file out of a package, after it has compared both hashes.
func (s source) take(archive []byte) ([]byte, error) {
	sum := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != s.Integrity {
		return nil, fmt.Errorf("the package is %s, and %s is listed", got, s.Integrity)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("it has no %s", s.Path)
		}
		if err != nil {
			return nil, err
		}
		if header.Name != "package/"+s.Path {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(r, maxFile))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != s.SHA256 {
			return nil, fmt.Errorf("%s has the SHA-256 %s, and %s is listed", s.Path, got, s.SHA256)
		}
		return content, nil
	}
}
