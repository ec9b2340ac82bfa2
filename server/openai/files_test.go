package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// field is a part of a form; one with a file name is the file.
type field struct{ name, value, filename string }

// fileObject is a file as the API shows it.
type fileObject struct {
	ID        string
	Object    string
	Bytes     int64
	Filename  string
	Purpose   string
	Status    string
	ExpiresAt *int64 `json:"expires_at"`
	CreatedAt int64  `json:"created_at"`
}

func formOf(t *testing.T, fields ...field) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	form := multipart.NewWriter(body)
	for _, f := range fields {
		h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + f.name + `"`}}
		if f.filename != "" {
			h.Set("Content-Disposition", `form-data; name="`+f.name+`"; filename="`+f.filename+`"`)
			h.Set("Content-Type", "application/octet-stream")
		}
		part, err := form.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, f.value)
	}
	form.Close()
	return body, form.FormDataContentType()
}

// upload sends a form and returns the answer.
func upload(t *testing.T, s *server.Server, path string, headers []string, fields ...field) (*http.Response, string) {
	t.Helper()
	body, contentType := formOf(t, fields...)
	return servertest.Post(t, s, path, body.String(), append([]string{"Content-Type", contentType}, headers...)...)
}

// uploaded is upload of what is accepted.
func uploaded(t *testing.T, s *server.Server, headers []string, fields ...field) (f fileObject) {
	t.Helper()
	resp, body := upload(t, s, "/v1/files", headers, fields...)
	if err := json.Unmarshal([]byte(body), &f); err != nil || resp.StatusCode != http.StatusOK || f.ID == "" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return f
}

// asked makes a request of OpenAI's API without a body.
func asked(t *testing.T, s *server.Server, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	return servertest.Ask(t, s, method, path, "", headers...)
}

// Fields may come in any order, before or after the file, and the content comes back exactly.
func TestFilesInAnyOrder(t *testing.T) {
	t.Parallel()
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	content := "{\"a\":1}\r\n\xff\x00\xef\xbb\xbf" + strings.Repeat("0123456789", 20_000)
	file, purpose := field{"file", content, "lines.jsonl"}, field{"purpose", "batch", ""}
	anchor, seconds := field{"expires_after[anchor]", "created_at", ""}, field{"expires_after[seconds]", "7200", ""}
	dotted := []field{{"expires_after.seconds", "7200", ""}, {"expires_after.anchor", "created_at", ""}}
	for i, fields := range [][]field{
		{file, purpose, anchor, seconds}, {purpose, anchor, seconds, file}, {anchor, seconds, file, purpose},
		{{"custom_llm_provider", "x", ""}, dotted[0], file, dotted[1], purpose, {"target_model_names", "", ""}},
		{{"expires_after", `{"anchor":"created_at","seconds":7200}`, ""}, file, purpose},
	} {
		f := uploaded(t, s, nil, fields...)
		if f.Object != "file" || f.Bytes != int64(len(content)) || f.Filename != "lines.jsonl" || f.Purpose != "batch" || f.Status != "processed" || f.ExpiresAt == nil || *f.ExpiresAt != f.CreatedAt+7200 {
			t.Errorf("%d: %+v", i, f)
		}
		for _, root := range []string{"/v1/", "/openai/v1/", "/openai/"} {
			resp, got := asked(t, s, http.MethodGet, root+"files/"+f.ID+"/content?api-version=2025-01-01")
			if got != content || resp.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("%d: %v, %d bytes", i, resp.Header, len(got))
			}
		}
	}
	if f := uploaded(t, s, nil, field{"file", "", "empty"}, field{"purpose", "user_data", ""}); f.Bytes != 0 || f.ExpiresAt != nil {
		t.Errorf("an empty file: %+v", f)
	}
}

// What is wrong with a form is refused in OpenAI's shape, and nothing is stored.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) { o.OpenAI = server.OpenAI{MaxFileBytes: 5000, MaxBatchBytes: 1000} })
	file, purpose := field{"file", "x", "f"}, field{"purpose", "batch", ""}
	for _, bad := range []struct {
		fields []field
		status int
		param  string
	}{
		{[]field{purpose}, 400, "file"},
		{[]field{file}, 400, "purpose"},
		{[]field{file, {"purpose", "nonsense", ""}}, 400, "purpose"},
		{[]field{file, purpose, file}, 400, "file"},
		{[]field{{"file", strings.Repeat("x", 1001), "f"}, purpose}, 413, "file"},
		{[]field{purpose, {"file", strings.Repeat("x", 1001), "f"}}, 413, "file"},
		{[]field{{"purpose", "vision", ""}, {"file", strings.Repeat("x", 5001), "f"}}, 413, "file"},
		{[]field{file, {"purpose", strings.Repeat("x", 5000), ""}}, 400, "purpose"},
		{[]field{file, purpose, {"expires_after[anchor]", "created_at", ""}, {"expires_after[seconds]", "1", ""}}, 400, "expires_after[seconds]"},
	} {
		resp, body := upload(t, s, "/v1/files", nil, bad.fields...)
		var e struct {
			Error struct{ Message, Type, Param string }
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode != bad.status || e.Error.Param != bad.param || e.Error.Type != "invalid_request_error" {
			t.Errorf("%.100v: %d %s", bad.fields, resp.StatusCode, body)
		}
	}
	for _, contentType := range []string{"application/json", "multipart/form-data", "multipart/form-data; boundary=x"} {
		if resp, body := servertest.Post(t, s, "/v1/files", "--y\r\nnonsense", "Content-Type", contentType); resp.StatusCode != 400 || !strings.Contains(body, `"error"`) {
			t.Errorf("%s: %d %s", contentType, resp.StatusCode, body)
		}
	}
	if _, body := asked(t, s, http.MethodGet, "/v1/files"); body != `{"object":"list","data":[],"first_id":"","last_id":"","has_more":false}`+"\n" {
		t.Errorf("stored: %s", body)
	}
	for _, gone := range [][2]string{{"GET", "/v1/files/file-x"}, {"GET", "/v1/files/file-x/content"}, {"DELETE", "/v1/files/file-x"}} {
		if resp, body := asked(t, s, gone[0], gone[1]); resp.StatusCode != 404 || !strings.Contains(body, "No such file object: file-x") {
			t.Errorf("%v: %d %s", gone, resp.StatusCode, body)
		}
	}
	for _, query := range []string{"limit=0", "limit=10001", "limit=x", "order=up", "after=x"} {
		if resp, body := asked(t, s, http.MethodGet, "/v1/files?"+query); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

// A repeat of a request makes no second file: by its key, or when an SDK says that it repeats.
func TestFilesAreMadeOnce(t *testing.T) {
	t.Parallel()
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	file, purpose := field{"file", "x", "f"}, field{"purpose", "vision", ""}
	first := uploaded(t, s, []string{"X-Stainless-Retry-Count", "0"}, file, purpose)
	if again := uploaded(t, s, []string{"X-Stainless-Retry-Count", "1"}, purpose, file); again.ID != first.ID {
		t.Errorf("%s and %s", first.ID, again.ID)
	}
	if other := uploaded(t, s, []string{"X-Stainless-Retry-Count", "0"}, file, purpose); other.ID == first.ID {
		t.Error("two uploads became one file")
	}
	key := []string{"Idempotency-Key", "k"}
	if a, b := uploaded(t, s, key, file, purpose), uploaded(t, s, key, file, purpose); a.ID != b.ID {
		t.Errorf("%s and %s", a.ID, b.ID)
	}
	resp, body := upload(t, s, "/v1/files", key, field{"file", "y", "f"}, purpose)
	refusedWith(t, resp, body, http.StatusBadRequest, "idempotency_mismatch")
}

// One tenant's files are not another's, and neither stores more than it may.
func TestFilesOfTenants(t *testing.T) {
	t.Parallel()
	few, bytes := int64(2), int64(3000)
	database := "sqlite:" + dbtest.SQLite(t)
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) {
		o.Database = database
		o.Tenants = map[string]server.Tenant{"acme": {Limits: forebay.TenantLimits{Files: &few, StoredBytes: &bytes}}}
	})
	auth := func(tenant string, scopes ...forebay.Scope) []string {
		return []string{"Authorization", "Bearer " + servertest.Key(t, database, tenant, scopes...)}
	}
	both := []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeRead}
	acme, other, reader := auth("acme", both...), auth("other", both...), auth("acme", forebay.ScopeRead)
	file, purpose := field{"file", strings.Repeat("x", 1400), "f"}, field{"purpose", "vision", ""}
	f := uploaded(t, s, acme, file, purpose)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if resp, _ := asked(t, s, method, "/v1/files/"+f.ID, other...); resp.StatusCode != 404 {
			t.Errorf("another tenant: %s %d", method, resp.StatusCode)
		}
	}
	if resp, _ := asked(t, s, http.MethodGet, "/v1/files/"+f.ID+"/content", other...); resp.StatusCode != 404 {
		t.Errorf("another tenant's content: %d", resp.StatusCode)
	}
	if _, body := asked(t, s, http.MethodGet, "/v1/files?after="+f.ID+"&order=asc", other...); !strings.Contains(body, `"data":[]`) {
		t.Errorf("another tenant's list: %s", body)
	}
	resp, body := upload(t, s, "/v1/files", reader, file, purpose)
	refusedWith(t, resp, body, http.StatusForbidden, "insufficient_permissions")
	resp, body = upload(t, s, "/v1/files", acme, field{"file", strings.Repeat("x", 1700), "f"}, purpose)
	refusedWith(t, resp, body, http.StatusTooManyRequests, "rate_limit_exceeded")
	servertest.Eventually(t, time.Minute, func() error { // what was refused counts until the next count, which is not at once if it takes long
		if resp, body := upload(t, s, "/v1/files", acme, file, purpose); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return nil
	})
	resp, body = upload(t, s, "/v1/files", acme, field{"file", "x", "f"}, purpose)
	refusedWith(t, resp, body, http.StatusTooManyRequests, "rate_limit_exceeded")
	if resp, _ := asked(t, s, http.MethodDelete, "/v1/files/"+f.ID, acme...); resp.StatusCode != 200 {
		t.Errorf("deleting: %d", resp.StatusCode)
	}
	uploaded(t, s, other, file, purpose)
}

// endless is a form whose file does not end before so many bytes, in memory of its own.
type endless struct {
	head *strings.Reader
	left int64
	tail *strings.Reader
	sent *atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	if n, err := e.head.Read(p); err == nil {
		return n, nil
	}
	if e.left == 0 {
		return e.tail.Read(p)
	}
	n := int(min(int64(len(p)), e.left))
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= int64(n)
	e.sent.Add(int64(n))
	return n, nil
}

// A large file goes through without being held in memory.
func TestFilesAreStreamed(t *testing.T) {
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	const size = 64 << 20
	var sent atomic.Int64
	body := &endless{strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"), size,
		strings.NewReader("\r\n--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nevals\r\n--b--\r\n"), &sent}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr(ctx).String()+"/v1/files", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	before := allocated()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var f fileObject
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.Bytes != size {
		t.Fatalf("%+v (%v)", f, err)
	}
	content, err := http.Get(fmt.Sprintf("http://%s/v1/files/%s/content", s.Addr(ctx), f.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer content.Body.Close()
	if n, err := io.Copy(io.Discard, content.Body); err != nil || n != size {
		t.Fatalf("%d bytes (%v)", n, err)
	}
	if grown := allocated() - before; grown > size/4 {
		t.Errorf("%d bytes were allocated for a file of %d", grown, int64(size))
	}
}

// allocated is how many bytes this process has ever allocated.
func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}
