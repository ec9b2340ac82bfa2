package blob

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	_ "github.com/forebayhq/forebay/internal/blob/clouds"
)

// The object stores' drivers are linked and take their URLs; nothing is requested yet.
func TestOpenObjectStores(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for _, address := range []string{
		"s3://payloads?region=eu-central-1",
		"s3://payloads?region=eu-central-1&prefix=forebay/&use_path_style=true&endpoint=http://127.0.0.1:9",
		"azblob://payloads",
		"azblob://payloads?storage_account=other&prefix=forebay/",
		"mem://",
	} {
		s := open(t, address)
		if _, ok := s.backend.(*bucket); !ok {
			t.Errorf("%s opens a %T", address, s.backend)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(t.TempDir(), "link") // as to a disk that is not mounted
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{
		"", "ftp://host/x", "gs://bucket", "file://", "file:///", "file://host/x", "file:///tmp/x?create_dir=1",
		"s3://", "azblob://", "s3://bucket?no_such_parameter=1", "azblob://c?no_such_parameter=1", "://", "http://[", "s3:/bucket", "s3:bucket", "azblob:container", "file:/tmp/x",
		file, filepath.Join(file, "below"), dangling, filepath.Join(dangling, "below"),
	} {
		s, err := Open(t.Context(), address)
		if err == nil {
			_ = s.Close()
			t.Errorf("%q opens", address)
			continue
		}
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest || strings.Contains(err.Error(), file) || strings.Contains(err.Error(), dangling) {
			t.Errorf("%q: %v with code %s", address, err, forebay.CodeOf(err))
		}
	}
}

func TestOpenMakesAPrivateFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	top := filepath.Join(t.TempDir(), "new")
	open(t, filepath.Join(top, "payloads"))
	for _, dir := range []string{top, filepath.Join(top, "payloads")} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", dir, info.Mode())
		}
	}
}

func TestRelativeFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, open(t, "file://./one"), Key(1, "job_a", "input"), "x")
	put(t, open(t, "two"), Key(1, "job_a", "input"), "x")
	for _, dir := range []string{"one", "two"} {
		if _, err := os.Stat(filepath.Join(dir, "t.1.job_a.input")); err != nil {
			t.Error(err)
		}
	}
}
