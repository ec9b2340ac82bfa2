package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// packed is a package with one file, and the entry of the list that fits it.
func packed(t *testing.T, content string) ([]byte, source) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	w := tar.NewWriter(zipped)
	header := &tar.Header{Name: "package/dist/a.js", Mode: 0o644, Size: int64(len(content))}
	err := w.WriteHeader(header)
	_, written := w.Write([]byte(content))
	if err := errors.Join(err, written, w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	whole, file := sha512.Sum512(archive.Bytes()), sha256.Sum256([]byte(content))
	return archive.Bytes(), source{
		Path: "dist/a.js", SHA256: hex.EncodeToString(file[:]),
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(whole[:]),
	}
}

func TestOnlyWhatIsListedIsTaken(t *testing.T) {
	archive, s := packed(t, "let a = 1")
	if content, err := s.take(archive); err != nil || string(content) != "let a = 1" {
		t.Fatalf("%q, %v", content, err)
	}
	other, otherSource := packed(t, "let a = 2")
	absent, changed := s, s
	absent.Path = "dist/b.js"
	changed.SHA256 = otherSource.SHA256
	for want, err := range map[string]error{
		"the package is sha512-": refusal(s, other),
		"it has no dist/b.js":    refusal(absent, archive),
		"has the SHA-256":        refusal(changed, archive),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func refusal(s source, archive []byte) error {
	_, err := s.take(archive)
	return err
}
