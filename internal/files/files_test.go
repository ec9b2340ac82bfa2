package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
)

// newService returns a service over a new folder of blobs.
func newService(t *testing.T, s *stores, o Options) *Service {
	t.Helper()
	blobs, err := blob.Open(t.Context(), filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	o.Store, o.Blobs = s.Files, blobs
	return New(o)
}

// create uploads a file whose fields come before its content.
func create(t *testing.T, s *Service, u Upload, content string) File {
	t.Helper()
	f, _, err := s.Create(t.Context(), "acme", &u, strings.NewReader(content), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// keys are the keys of all blobs.
func keys(t *testing.T, s *Service) (all []string) {
	t.Helper()
	_, err := s.Blobs.Sweep(t.Context(), time.Now().AddDate(100, 0, 0), func(some []string) (map[string]bool, error) {
		used := map[string]bool{}
		for _, key := range some {
			all, used[key] = append(all, key), true
		}
		return used, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A content comes back byte for byte, and only to its tenant.
func TestContentIsExact(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, st *stores) {
		s := newService(t, st, Options{})
		content := "\xef\xbb\xbf{}\r\n\x00\xff\xfe" + strings.Repeat("line\r", 100_000)
		f := create(t, s, Upload{Name: "a\x00b\n\xff.jsonl", Purpose: PurposeBatch}, content)
		if f.Name != "ab.jsonl" || f.Size != int64(len(content)) || f.ExpiresAt == nil || !f.ExpiresAt.Equal(f.CreatedAt.Add(DefaultBatchLifetime)) {
			t.Errorf("got %+v", f)
		}
		r, found, err := s.Content(t.Context(), "acme", f.ID)
		if err != nil || found.ID != f.ID {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := io.ReadAll(r); err != nil || string(got) != content {
			t.Errorf("%d bytes (%v)", len(got), err)
		}
		if _, err := s.File(t.Context(), "other", f.ID); !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("another tenant: %v", err)
		}
		if err := s.Delete(t.Context(), "other", f.ID); !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("another tenant: %v", err)
		}
		if err := s.Delete(t.Context(), "acme", f.ID); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{s.Delete(t.Context(), "acme", f.ID), second(s.File(t.Context(), "acme", f.ID))} {
			if !errors.Is(err, forebay.ErrNotFound) {
				t.Errorf("a deleted file: %v", err)
			}
		}
		if err := s.Purge(t.Context()); err != nil || len(keys(t, s)) != 0 {
			t.Errorf("left: %q (%v)", keys(t, s), err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// What is refused leaves nothing, whether that is known before the content or after it.
func TestRefusedUploads(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, st *stores) {
		s := newService(t, st, Options{MaxBytes: 100, MaxBatchBytes: 10})
		for _, bad := range []struct {
			upload Upload
			size   int
			field  string
		}{
			{Upload{}, 1, "purpose"},
			{Upload{Purpose: PurposeOutput}, 1, "purpose"},
			{Upload{Purpose: "user_data"}, 101, "file"},
			{Upload{Purpose: PurposeBatch}, 11, "file"},
			{Upload{Purpose: "vision", Anchor: "now", Seconds: "3600"}, 1, "expires_after[anchor]"},
			{Upload{Purpose: "vision", Anchor: "created_at", Seconds: "3599"}, 1, "expires_after[seconds]"},
			{Upload{Purpose: "vision", Anchor: "created_at", Seconds: "1e5"}, 1, "expires_after[seconds]"},
			{Upload{Purpose: "vision", Anchor: "created_at"}, 1, "expires_after[seconds]"},
			{Upload{Purpose: "vision", Key: "a\nb"}, 1, "Idempotency-Key"},
		} {
			for _, later := range []bool{false, true} {
				u := bad.upload
				if later {
					u = Upload{}
				}
				_, _, err := s.Create(t.Context(), "acme", &u, strings.NewReader(strings.Repeat("x", bad.size)), func() error { u = bad.upload; return nil })
				var refused *forebay.Error
				if !errors.As(err, &refused) || refused.Field != bad.field {
					t.Errorf("%+v: %v", bad, err)
				}
			}
		}
		broken := errors.New("broken")
		if _, _, err := s.Create(t.Context(), "acme", &Upload{Purpose: "vision"}, io.MultiReader(strings.NewReader("x"), failing{broken}), nil); !errors.Is(err, broken) {
			t.Error(err)
		}
		if _, _, err := s.Create(t.Context(), "acme", &Upload{Purpose: "vision"}, strings.NewReader("x"), func() error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		if left := keys(t, s); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
		if list, more, err := s.Files(t.Context(), "acme", Query{Limit: 10}); err != nil || more || len(list) != 0 {
			t.Errorf("%d files (%v)", len(list), err)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Pages have all files once, in both orders, also when those at their ends are deleted.
func TestPages(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, st *stores) {
		s := newService(t, st, Options{})
		var made []string
		for i := range 7 {
			made = append(made, create(t, s, Upload{Purpose: map[bool]string{true: "vision", false: "evals"}[i%2 == 0]}, "x").ID)
		}
		pages := func(q Query) (ids []string) {
			t.Helper()
			q.Limit = 2
			for more := true; more; {
				var list []File
				var err error
				if list, more, err = s.Files(t.Context(), "acme", q); err != nil || more && len(list) != 2 {
					t.Fatalf("%d files (%v)", len(list), err)
				}
				for _, f := range list {
					ids, q.After = append(ids, f.ID), f.ID
				}
			}
			return ids
		}
		// Files of one millisecond are in the order of their ids, which is any.
		up := pages(Query{Oldest: true})
		down := pages(Query{})
		if len(up) != 7 || len(down) != 7 || up[0] != down[6] || up[6] != down[0] || !sorted(up) {
			t.Errorf("up %q, down %q, made %q", up, down, made)
		}
		if of := pages(Query{Purpose: "evals"}); len(of) != 3 {
			t.Errorf("of a purpose: %q", of)
		}
		for _, id := range down {
			if err := s.Delete(t.Context(), "acme", id); err != nil {
				t.Fatal(err)
			}
			if list, _, err := s.Files(t.Context(), "acme", Query{After: id, Limit: 10}); err != nil || len(list) > 0 && list[0].ID >= id {
				t.Errorf("after a deleted file: %v (%v)", list, err)
			}
		}
		for _, q := range []Query{{Limit: 0}, {Limit: MaxPage + 1}, {Limit: 1, After: "file-x"}, {Limit: 1, Purpose: "a\x00"}} {
			if _, _, err := s.Files(t.Context(), "acme", q); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

func sorted(ids []string) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i-1] >= ids[i] {
			return false
		}
	}
	return true
}

// A file that has expired is found by nobody, and goes. One that a batch reads stays until that
// ends.
func TestExpiry(t *testing.T) {
	onClocks(t, func(t *testing.T, st *stores, pass func(time.Duration)) {
		s := newService(t, st, Options{})
		f := create(t, s, Upload{Purpose: PurposeBatch, Anchor: "created_at", Seconds: "3600"}, "x")
		stays := create(t, s, Upload{Purpose: "evals"}, "y")
		use := func(purpose string) (used bool) {
			t.Helper()
			used, err := db.Transact(t.Context(), st.DB.Writer, db.Op{}, func(tx *db.Tx) (bool, error) { return Use(tx, f.Tenant, f.ID, purpose) })
			if err != nil {
				t.Fatal(err)
			}
			return used
		}
		if use("evals") || !use(PurposeBatch) {
			t.Error("a file is used by its purpose")
		}
		pass(time.Hour)
		if _, err := s.File(t.Context(), "acme", f.ID); !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("expired: %v", err)
		}
		if list, _, err := s.Files(t.Context(), "acme", Query{Limit: 9}); err != nil || len(list) != 1 || list[0].ID != stays.ID {
			t.Errorf("%v (%v)", list, err)
		}
		if use(PurposeBatch) {
			t.Error("an expired file can be used")
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.Purge(t.Context()))
		if left := keys(t, s); len(left) != 2 {
			t.Errorf("while it is used: %q", left)
		}
		if again, err := s.Store.Used(t.Context(), f.ID); err != nil || again.Blob != f.Blob {
			t.Errorf("%+v (%v)", again, err)
		}
		_, err := db.Transact(t.Context(), st.DB.Writer, db.Op{}, func(tx *db.Tx) (struct{}, error) { return struct{}{}, Unuse(tx, f.ID) })
		must(err)
		must(s.Purge(t.Context()))
		if left := keys(t, s); len(left) != 1 || left[0] != stays.Blob {
			t.Errorf("left: %q", left)
		}
		used := map[string]bool{}
		must(s.Store.BlobsInUse(t.Context(), map[string]string{stays.Blob: stays.ID, f.Blob: f.ID}, func(key string) { used[key] = true }))
		if len(used) != 1 || !used[stays.Blob] {
			t.Errorf("in use: %v", used)
		}
	})
}

// A repeat gets the file of the first request, and its own content goes.
func TestRepeats(t *testing.T) {
	onClocks(t, func(t *testing.T, st *stores, pass func(time.Duration)) {
		s := newService(t, st, Options{Remember: time.Hour})
		upload := func(u Upload, content string) (string, bool, error) {
			u.Purpose = "evals"
			f, existing, err := s.Create(context.Background(), "acme", &u, bytes.NewReader([]byte(content)), func() error { return nil })
			return f.ID, existing, err
		}
		expect := func(what string, u Upload, content, id string) (made string) {
			t.Helper()
			made, existing, err := upload(u, content)
			if err != nil || existing != (id != "") || existing && made != id {
				t.Fatalf("%s: %s %v %v", what, made, existing, err)
			}
			return made
		}
		first := expect("a first request", Upload{Name: "a"}, "x", "")
		expect("the same again", Upload{Name: "a", Again: true}, "x", first)
		expect("another content", Upload{Name: "a", Again: true}, "y", "")
		expect("another name", Upload{Name: "b", Again: true}, "x", "")
		second := expect("an equal request that is no repeat", Upload{Name: "a"}, "x", "")
		expect("its repeat", Upload{Name: "a", Again: true}, "x", second)
		keyed := expect("a key", Upload{Name: "a", Key: "k"}, "x", "")
		expect("the key again", Upload{Name: "a", Key: "k"}, "x", keyed)
		if _, _, err := upload(Upload{Name: "a", Key: "k"}, "z"); !errors.Is(err, ErrOtherRequest) {
			t.Errorf("a key with another request: %v", err)
		}
		if left := keys(t, s); len(left) != 5 {
			t.Errorf("%d blobs for 5 files", len(left))
		}
		pass(repeatedWithin)
		expect("a repeat much later", Upload{Name: "a", Again: true}, "x", "")
		expect("a key later", Upload{Name: "a", Key: "k"}, "x", keyed)
		pass(time.Hour)
		expect("a key that was forgotten", Upload{Name: "a", Key: "k"}, "x", "")
		if n := len(keys(t, s)); n != 7 {
			t.Error(fmt.Sprint(n, " blobs for 7 files"))
		}
	})
}
