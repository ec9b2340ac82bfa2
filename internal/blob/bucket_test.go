package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// s3Store is a store in an S3 that answers as the handler does.
func s3Store(t *testing.T, handle http.HandlerFunc) *Store {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return open(t, "s3://payloads?region=eu-central-1&use_path_style=true&endpoint="+server.URL)
}

// Only the storage's word for one object says that a payload is gone: whatever refers to it is
// given up then.
func TestOnlyAMissingObjectIsMissing(t *testing.T) {
	for code, want := range map[string]forebay.Code{
		"NoSuchKey": forebay.CodeNotFound, "NoSuchBucket": forebay.CodeUnavailable,
	} {
		s := s3Store(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		})
		_, err := s.ReadAll(t.Context(), Key(1, "job_a", "input"), 100)
		wantCode(t, err, want)
		_, err = s.GetFrom(t.Context(), Key(1, "job_a", "input"), 1)
		wantCode(t, err, want)
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account") // the driver reads these once
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for code, want := range map[string]forebay.Code{
		"BlobNotFound": forebay.CodeNotFound, "ContainerNotFound": forebay.CodeUnavailable,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Ms-Error-Code", code)
			w.WriteHeader(http.StatusNotFound)
		}))
		defer server.Close()
		s := open(t, "azblob://payloads?protocol=http&localemu=true&domain="+strings.TrimPrefix(server.URL, "http://"))
		_, err := s.ReadAll(t.Context(), Key(1, "job_a", "input"), 100)
		wantCode(t, err, want)
		source := &Source{bucket: s.backend.(*bucket)}
		_, _, err = source.Open(t.Context(), "report.pdf")
		wantCode(t, err, want)
	}
}

// knowNoName answers a question of DNS over a stream: there is no such name.
func knowNoName(c net.Conn) {
	defer c.Close()
	question := make([]byte, 512)
	if n, err := c.Read(question[:2]); err != nil || n != 2 {
		return
	}
	n, err := io.ReadFull(c, question[2:2+int(question[1])]) // it is short
	if err != nil {
		return
	}
	question[4] |= 0x80    // an answer
	question[5] = 0x80 | 3 // NXDOMAIN
	_, _ = c.Write(question[:2+n])
}

// A name server that does not know the storage, as for a moment while its address changes, says
// nothing of its objects.
func TestAnUnknownHostIsNoMissingObject(t *testing.T) {
	if testing.Short() {
		t.Skip("the driver tries for ten seconds")
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account") // the driver reads these once
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go knowNoName(there)
		return here, nil
	}}
	defer func() { net.DefaultResolver = before }()
	s := open(t, "azblob://payloads?domain=storage.invalid")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err := s.ReadAll(ctx, Key(1, "job_a", "input"), 100)
	wantCode(t, err, forebay.CodeUnavailable)
}

// Storage that takes a request and never answers holds nobody for long.
func TestSilentStorage(t *testing.T) {
	key := Key(1, "job_a", "input")
	for name, use := range map[string]func(context.Context, *Store) error{
		"open":   func(ctx context.Context, s *Store) error { _, err := s.ReadAll(ctx, key, 100); return err },
		"delete": func(ctx context.Context, s *Store) error { return s.Delete(ctx, key) },
		"put":    func(ctx context.Context, s *Store) error { return s.Put(ctx, key, strings.NewReader("x"), 1) },
		"list": func(ctx context.Context, s *Store) error {
			_, err := s.Sweep(ctx, time.Now(), func([]string) (map[string]bool, error) { return nil, nil })
			return err
		},
		"read": func(ctx context.Context, s *Store) error {
			s.backend.(*bucket).silence = time.Minute // the answer begins
			r, _, err := s.Get(ctx, "t/1/job_a/begins")
			if err != nil {
				t.Error(err)
				return nil
			}
			r.(*payload).ReadCloser.(*reader).watch.limit = 50 * time.Millisecond
			defer r.Close()
			_, err = io.ReadAll(r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			s := s3Store(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "begins") {
					w.Header().Set("Content-Length", "100")
					_, _ = io.WriteString(w, "some")
					_ = http.NewResponseController(w).Flush()
				} else {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				select {
				case <-ended:
				case <-r.Context().Done():
				}
			})
			defer close(ended)
			s.backend.(*bucket).silence = 50 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			wantCode(t, use(ctx, s), forebay.CodeUnavailable)
		})
	}
}

// stubborn is storage that does not remove some of its objects.
type stubborn struct {
	backend
	keeps string
	tried int
}

func (s *stubborn) remove(ctx context.Context, key string) error {
	if s.tried++; strings.Contains(key, s.keeps) {
		return errors.New("it is held")
	}
	return s.backend.remove(ctx, key)
}

// An orphan that cannot be removed, as one under a legal hold, keeps no other. Storage that
// removes nothing is left alone soon.
func TestSweepPassesWhatCannotBeRemoved(t *testing.T) {
	for keeps, want := range map[string]int{"job_1/": 29, "job_": 0} {
		s := open(t, "mem://")
		for i := range 30 {
			put(t, s, Key(1, fmt.Sprint("job_", i), "input"), "x")
		}
		held := &stubborn{backend: s.backend, keeps: keeps}
		s.backend = held
		removed, err := s.Sweep(t.Context(), time.Now().Add(time.Hour), func([]string) (map[string]bool, error) { return nil, nil })
		wantCode(t, err, forebay.CodeUnavailable)
		if removed != want || held.tried != max(want+1, maxFailures) {
			t.Errorf("%d removed by %d tries, want %d", removed, held.tried, want)
		}
	}
}
