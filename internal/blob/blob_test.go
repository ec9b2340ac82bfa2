package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/forebayhq/forebay"
)

// eachStore runs a test against every kind of store that needs no network.
func eachStore(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, address := range map[string]string{
		"mem":    "mem://",
		"path":   filepath.Join(t.TempDir(), "a", "b"),
		"folder": "file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "c")),
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, address)) })
	}
}

func open(t *testing.T, address string) *Store {
	t.Helper()
	s, err := Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(value), int64(len(value))); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code forebay.Code) {
	t.Helper()
	if err == nil || forebay.CodeOf(err) != code {
		t.Fatalf("got error %v with code %s, want code %s", err, forebay.CodeOf(err), code)
	}
}

func TestPayloadsComeBackAsStored(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for name, want := range map[string][]byte{
			"empty":    {},
			"bytes":    {0, 0xff, 0xfe, '\n', 0},
			"megabyte": bytes.Repeat([]byte("0123456789abcdef"), 1<<16),
		} {
			key := Key(7, "job_"+name, "input")
			if err := s.Put(t.Context(), key, iotest.OneByteReader(bytes.NewReader(want)), int64(len(want))); err != nil {
				t.Fatal(err)
			}
			r, size, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			if size != int64(len(want)) || !bytes.Equal(got, want) {
				t.Errorf("%s: got %d bytes, announced as %d, want %d", name, len(got), size, len(want))
			}
			whole, err := s.ReadAll(t.Context(), key, int64(len(want)))
			if err != nil || !bytes.Equal(whole, want) {
				t.Errorf("%s: ReadAll gave %d bytes, %v", name, len(whole), err)
			}
		}
	})
}

func TestPutReplaces(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key := Key(1, "job_a", "output")
		put(t, s, key, "a long first value")
		put(t, s, key, "second")
		if got, err := s.ReadAll(t.Context(), key, 100); err != nil || string(got) != "second" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestReadAllEnforcesItsLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key := Key(1, "job_a", "input")
		put(t, s, key, "12345")
		_, err := s.ReadAll(t.Context(), key, 4)
		wantCode(t, err, forebay.CodePayloadTooLarge)
	})
}

func TestMissingPayload(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key := Key(1, "job_a", "input")
		_, _, err := s.Get(t.Context(), key)
		wantCode(t, err, forebay.CodeNotFound)
		if !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("%v is not ErrNotFound", err)
		}
		_, err = s.ReadAll(t.Context(), key, 10)
		wantCode(t, err, forebay.CodeNotFound)
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("deleting nothing: %v", err)
		}
		put(t, s, key, "x")
		for range 2 {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			_, _, err = s.Get(t.Context(), key)
			wantCode(t, err, forebay.CodeNotFound)
		}
	})
}

// A Put whose payload differs from the announced size, or whose source fails, changes nothing.
func TestFailedPutChangesNothing(t *testing.T) {
	broken := forebay.Errorf(forebay.CodePayloadTooLarge, "the body is over the limit")
	eachStore(t, func(t *testing.T, s *Store) {
		key := Key(1, "job_a", "input")
		put(t, s, key, "before")
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for name, c := range map[string]struct {
			ctx  context.Context
			r    io.Reader
			size int64
			code forebay.Code
		}{
			"short":     {t.Context(), strings.NewReader("123"), 4, forebay.CodeInvalidRequest},
			"long":      {t.Context(), strings.NewReader("12345"), 4, forebay.CodeInvalidRequest},
			"not empty": {t.Context(), strings.NewReader("1"), 0, forebay.CodeInvalidRequest},
			"negative":  {t.Context(), strings.NewReader(""), -1, forebay.CodeInternal},
			"source":    {t.Context(), io.MultiReader(strings.NewReader("12"), iotest.ErrReader(broken)), 4, forebay.CodePayloadTooLarge},
			"late":      {t.Context(), io.MultiReader(strings.NewReader("1234"), iotest.ErrReader(broken)), 4, forebay.CodePayloadTooLarge},
			"cancelled": {cancelled, strings.NewReader("1234"), 4, forebay.CodeInternal},
		} {
			err := s.Put(c.ctx, key, c.r, c.size)
			if err == nil || forebay.CodeOf(err) != c.code {
				t.Errorf("%s: got %v, want code %s", name, err, c.code)
			}
			if name == "cancelled" && !errors.Is(err, context.Canceled) {
				t.Errorf("%v is not context.Canceled", err)
			}
			if got, err := s.ReadAll(t.Context(), key, 10); err != nil || string(got) != "before" {
				t.Errorf("%s: afterwards the payload is %q, %v", name, got, err)
			}
		}
		if f, ok := s.backend.(*folder); ok {
			if names := fileNames(t, f); len(names) != 1 {
				t.Errorf("failed puts left files behind: %q", names)
			}
		}
	})
}

func TestConcurrentPuts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				own := strings.Repeat(fmt.Sprint(i%10), 10_000)
				for _, key := range []string{Key(1, fmt.Sprint("job_", i), "input"), Key(1, "job_shared", "input")} {
					if err := s.Put(t.Context(), key, strings.NewReader(own), int64(len(own))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i := range 16 {
			if got, err := s.ReadAll(t.Context(), Key(1, fmt.Sprint("job_", i), "input"), 10_000); err != nil || string(got) != strings.Repeat(fmt.Sprint(i%10), 10_000) {
				t.Errorf("job %d: %d bytes, %v", i, len(got), err)
			}
		}
		got, err := s.ReadAll(t.Context(), Key(1, "job_shared", "input"), 10_000)
		if err != nil || len(got) != 10_000 || strings.Trim(string(got), string(got[0])) != "" {
			t.Errorf("the shared key mixes writers, or fails: %d bytes, %v", len(got), err)
		}
	})
}

func TestSweepRemovesOrphansOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		const total = sweepPage*2 + 7
		want := map[string]bool{}
		for i := range total {
			key := Key(int64(i%3), fmt.Sprint("job_", i), "input")
			want[key] = i%2 == 0
			put(t, s, key, "x")
		}
		hour := time.Hour
		asked := func(keys []string) (map[string]bool, error) {
			t.Errorf("asked about %d keys that are too young", len(keys))
			return nil, nil
		}
		if n, err := s.Sweep(t.Context(), time.Now().Add(-hour), asked); n != 0 || err != nil {
			t.Fatalf("young payloads: removed %d, %v", n, err)
		}
		seen := map[string]bool{}
		pages := 0
		n, err := s.Sweep(t.Context(), time.Now().Add(hour), func(keys []string) (map[string]bool, error) {
			if pages++; len(keys) > sweepPage {
				t.Errorf("a page has %d keys", len(keys))
			}
			for _, key := range keys {
				if _, ours := want[key]; !ours || seen[key] {
					t.Errorf("asked about %q, unknown or twice", key)
				}
				seen[key] = true
			}
			return want, nil
		})
		if err != nil || n != total/2 || pages != 3 || len(seen) != total {
			t.Fatalf("removed %d of %d in %d pages, seen %d, %v", n, total/2, pages, len(seen), err)
		}
		for key, kept := range want {
			if _, err := s.ReadAll(t.Context(), key, 1); kept != (err == nil) {
				t.Fatalf("%s: kept should be %t, reading gives %v", key, kept, err)
			}
		}
	})
}

func TestSweepStopsWhenReferencesAreUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key := Key(1, "job_a", "input")
		put(t, s, key, "x")
		unknown := errors.New("database is away")
		n, err := s.Sweep(t.Context(), time.Now().Add(time.Hour), func([]string) (map[string]bool, error) { return nil, unknown })
		if n != 0 || !errors.Is(err, unknown) {
			t.Errorf("removed %d, %v", n, err)
		}
		if _, err := s.ReadAll(t.Context(), key, 1); err != nil {
			t.Errorf("the payload is gone: %v", err)
		}
	})
}

func TestCheckLeavesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := s.Sweep(t.Context(), time.Now().Add(time.Hour), func([]string) (map[string]bool, error) { return nil, nil })
		if n != 0 || err != nil {
			t.Errorf("the probe stayed: swept %d, %v", n, err)
		}
	})
}

func TestCheckSaysWhenTheFolderIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "payloads")
	s := open(t, dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	err := s.Check(t.Context())
	wantCode(t, err, forebay.CodeUnavailable)
	if strings.Contains(err.Error(), "payloads") {
		t.Errorf("the error shows a path: %v", err)
	}
}

func TestKeys(t *testing.T) {
	if key := Key(42, "job_01", "input"); key != "t/42/job_01/input" || !ValidKey(key) {
		t.Errorf("Key gives %q", key)
	}
	s := open(t, "mem://")
	for _, key := range []string{
		"", "t", "t/", "x/1/a", "/t/1/a", "t//a", "t/1/a/", "t/1/../2/a", "t/1/..", "t/1/.", "t/1/a.b",
		`t\1\a`, "t/1/a b", "t/1/ä", "t/1/a\x00", "t/1/a\n", "t/1/%2e%2e", "t/1/a:b", "t/1/~", "t/1/*",
		"t/" + strings.Repeat("a", maxKeyBytes),
	} {
		if ValidKey(key) {
			t.Errorf("%q is valid", key)
		}
		wantCode(t, s.Put(t.Context(), key, strings.NewReader(""), 0), forebay.CodeInternal)
		_, _, err := s.Get(t.Context(), key)
		wantCode(t, err, forebay.CodeInternal)
		wantCode(t, s.Delete(t.Context(), key), forebay.CodeInternal)
	}
}

func FuzzValidKeyStaysInItsFolder(f *testing.F) {
	f.Add("t/1/job_a/input")
	f.Add("t/1/../x")
	f.Fuzz(func(t *testing.T, key string) {
		if !ValidKey(key) {
			return
		}
		name := fileName(key)
		if !filepath.IsLocal(name) || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			t.Errorf("%q becomes the file %q", key, name)
		}
		if back := strings.ReplaceAll(name, ".", "/"); back != key {
			t.Errorf("%q comes back as %q", key, back)
		}
	})
}
