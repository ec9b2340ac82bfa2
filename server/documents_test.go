package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	for engine, address := range documentEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			l := openLibrary(t, server.Options{Database: address(t), Documents: server.Documents{ChunkTokens: 20, OverlapTokens: 5, BatchInputs: 3,
				Sources: map[string]server.DocumentSource{"inbox": {URL: "file://" + folder}}}})
			l.subscribe(t)
			t.Run("pipeline", l.pipeline)
			t.Run("replace", l.replace)
			t.Run("correct", l.correct)
			t.Run("failures", l.failures)
			t.Run("sources", func(t *testing.T) { l.fromSource(t, folder) })
			t.Run("bad requests", l.badRequests)
			t.Run("events", l.told)
			t.Run("delete", l.deleteAll)
		})
	}
}

func (l *library) pipeline(t *testing.T) {
	before := l.model.Stats().Calls
	content := "# The heron\n\n" + strings.Repeat("Herons stand in shallow water and wait. ", 20) + "\n\n## Nests\n\nThey build platforms of sticks in tall trees.\n"
	d, status, err := l.upload("?id=heron&name=heron.md&metadata=shelf=3", "", content)
	if err != nil || status != http.StatusAccepted || d.Status != forebay.DocumentProcessing && d.Status != forebay.DocumentReady { // the answer may come later
		t.Fatalf("%d %+v %v", status, d, err)
	}
	d = l.await("heron")
	if d.Status != forebay.DocumentReady || !d.Searchable || d.Title != "The heron" || d.Language != "en" || d.Chunks < 5 || d.ContentType != "text/markdown" ||
		d.Metadata["shelf"] != "3" || len(d.Entities) != 1 || d.TextBytes != int64(len(content)) {
		t.Errorf("%+v", d)
	}
	batches := (int(d.Chunks) + 2) / 3
	if calls := int(l.model.Stats().Calls - before); calls != batches+1 {
		t.Errorf("%d calls for %d chunks in batches of three and one about it", calls, d.Chunks)
	}
	for _, mode := range []forebay.SearchMode{forebay.SearchKeyword, forebay.SearchVector, forebay.SearchHybrid} {
		found := l.search(mode, "platforms of sticks")
		if len(found) == 0 || found[0].DocumentID != "heron" {
			t.Errorf("%s found %+v", mode, found)
			continue
		}
		if mode == forebay.SearchVector {
			continue
		}
		p := found[0].Position
		if content[p.StartByte:p.EndByte] != found[0].Text || !slices.Equal(p.Headings, []string{"The heron", "Nests"}) || !strings.Contains(found[0].Text, "platforms") {
			t.Errorf("%s: %+v", mode, found[0])
		}
	}
	if found := l.search(forebay.SearchKeyword, "platforms penguins"); len(found) != 1 {
		t.Errorf("with a word that no chunk has: %+v", found)
	}
	if _, status, err := l.upload("?id=heron", "text/markdown", content); err != nil || status != http.StatusOK {
		t.Errorf("the same once more: %d, %v", status, err)
	}
	same, _, err := l.upload("", "text/plain", "Known by what it says.")
	again, status, err2 := l.upload("", "text/plain", "Known by what it says.")
	if err != nil || err2 != nil || same.ID != again.ID || status != http.StatusOK || !strings.HasPrefix(same.ID, "doc_") {
		t.Errorf("%s, %s: %d, %v, %v", same.ID, again.ID, status, err, err2)
	}
	l.await(same.ID)
	var page forebay.Page[forebay.Document]
	var old forebay.Page[forebay.Document]
	if err := l.Get(t.Context(), "/v1/documents?limit=1", &page); err != nil || len(page.Items) != 1 || page.Items[0].ID != same.ID || page.NextCursor == "" {
		t.Errorf("%+v, %v", page, err)
	}
	if err := l.Get(t.Context(), "/v1/documents?created_before=2020-01-01T00:00:00Z", &old); err != nil || len(old.Items) != 0 {
		t.Errorf("before there were documents: %v (%v)", old, err)
	}
	if err := l.Get(t.Context(), "/v1/documents?limit=1&cursor="+page.NextCursor, &page); err != nil || len(page.Items) != 1 || page.Items[0].ID != "heron" {
		t.Errorf("%+v, %v", page, err)
	}
}

// While a document's new content is on its way, and if it never gets there, searches find the old.
func (l *library) replace(t *testing.T) {
	l.add("changing", "The first edition mentions zeppelins.")
	entered, proceed := make(chan struct{}), make(chan struct{})
	slow := func(modelsim.Call) modelsim.Reply {
		close(entered)
		<-proceed
		return modelsim.Reply{}
	}
	l.embed.Store(&slow)
	if _, _, err := l.upload("?id=changing", "text/plain", "The second edition mentions submarines."); err != nil {
		t.Fatal(err)
	}
	<-entered
	l.embed.Store(nil)
	var d forebay.Document
	if err := l.Get(t.Context(), "/v1/documents/changing", &d); err != nil || d.Status != forebay.DocumentProcessing || !d.Searchable {
		t.Errorf("%+v, %v", d, err)
	}
	if old, made := l.search(forebay.SearchKeyword, "zeppelins"), l.search(forebay.SearchKeyword, "submarines"); len(old) != 1 || len(made) != 0 {
		t.Errorf("meanwhile the old one is found %d times, the new one %d times", len(old), len(made))
	}
	close(proceed)
	if d := l.await("changing"); d.Status != forebay.DocumentReady {
		t.Fatalf("%+v", d)
	}
	for _, mode := range []forebay.SearchMode{forebay.SearchKeyword, forebay.SearchHybrid, forebay.SearchVector} {
		for _, r := range l.search(mode, "zeppelins submarines") {
			if r.DocumentID == "changing" && !strings.Contains(r.Text, "submarines") {
				t.Errorf("%s still finds %q", mode, r.Text)
			}
		}
	}
}

// The same bytes are another content where they are read in another way; another name costs
// nothing.
func (l *library) correct(t *testing.T) {
	const content = "# Gnus\n\nThe gnu of the caf\xe9 wanders."
	steps := []struct {
		query, contentType string
		status             int
		want               forebay.DocumentStatus
		made               bool // another revision
	}{
		{"", "text/plain", http.StatusAccepted, forebay.DocumentFailed, true},
		{"", "text/plain; charset=utf-8", http.StatusOK, forebay.DocumentFailed, false},
		{"", "text/plain; charset=iso-8859-1", http.StatusAccepted, forebay.DocumentReady, true},
		{"", "text/plain; charset=ISO-8859-1", http.StatusOK, forebay.DocumentReady, false},
		{"&name=gnu.txt&metadata=shelf=3&metadata=row=1", "text/plain", http.StatusOK, forebay.DocumentReady, false},
		{"", "", http.StatusOK, forebay.DocumentReady, false},
		{"&metadata=shelf=4", "text/plain", http.StatusOK, forebay.DocumentReady, false},
		{"", "text/markdown", http.StatusAccepted, forebay.DocumentReady, true},
		{"&name=gnu.md", "", http.StatusOK, forebay.DocumentReady, false},
	}
	revision := ""
	for i, step := range steps {
		before := l.model.Stats().Calls
		d, status, err := l.upload("?id=gnu"+step.query, step.contentType, content)
		if err != nil || status != step.status || (d.Revision != revision) != step.made {
			t.Errorf("step %d: %d, %+v, %v", i, status, d, err)
		}
		revision = d.Revision
		if d = l.await("gnu"); d.Status != step.want || d.Revision != revision {
			t.Errorf("step %d: %+v", i, d)
		}
		if calls := l.model.Stats().Calls - before; (calls > 0) != (step.made && step.want == forebay.DocumentReady) {
			t.Errorf("step %d: %d calls", i, calls)
		}
	}
	found := l.search(forebay.SearchKeyword, "gnu café")
	if len(found) != 1 || found[0].Revision != revision || found[0].Name != "gnu.md" || found[0].Metadata["shelf"] != "4" || len(found[0].Metadata) != 1 || found[0].Title != "Gnus" {
		t.Errorf("%+v", found)
	}
}

func (l *library) failures(t *testing.T) {
	for what, c := range map[string][3]string{
		"empty":  {"text/plain", " \n ", string(forebay.CodeDocumentEmpty)},
		"broken": {"application/pdf", "%PDF-1.4\nno more", string(forebay.CodeDocumentBroken)},
		"binary": {"text/plain", "\x00\x01\x02", string(forebay.CodeDocumentEncoding)},
		"latin1": {"text/plain", "caf\xe9", string(forebay.CodeDocumentEncoding)},
	} {
		if _, _, err := l.upload("?id="+what, c[0], c[1]); err != nil {
			t.Fatal(err)
		}
		d := l.await(what)
		b := d.Branches.Split
		if d.Status != forebay.DocumentFailed || d.Searchable || b.Status != forebay.BranchFailed || len(b.Errors) != 1 || b.Errors[0].Code != c[2] {
			t.Errorf("%s: %+v", what, d)
		}
	}
	refuse := func(modelsim.Call) modelsim.Reply { return modelsim.Reply{Status: http.StatusBadRequest} }
	l.embed.Store(&refuse)
	d := l.add("unlucky", "Quokkas smile.")
	if b := d.Branches; d.Status != forebay.DocumentFailed || b.Split.Status != forebay.BranchDone || b.Embedding.Status != forebay.BranchFailed {
		t.Errorf("%+v", d)
	}
	if found := l.search(forebay.SearchKeyword, "quokkas"); len(found) != 0 {
		t.Errorf("what is not whole is found: %+v", found)
	}
	shorter := func(modelsim.Call) modelsim.Reply {
		return modelsim.Reply{Body: []byte(`{"data":[{"index":0,"embedding":[1,2,3,4]}],"model":"other"}`)}
	}
	l.embed.Store(&shorter)
	l.retry(t, "unlucky")
	d = l.await("unlucky")
	if b := d.Branches.Embedding; len(b.Errors) != 1 || b.Errors[0].Code != string(forebay.CodeDimensionsChanged) {
		t.Errorf("with shorter vectors: %+v", d)
	}
	l.embed.Store(nil)
	l.retry(t, "unlucky")
	if d = l.await("unlucky"); d.Status != forebay.DocumentReady || len(l.search(forebay.SearchKeyword, "quokkas")) != 1 {
		t.Errorf("retried: %+v", d)
	}
	var p *servertest.Problem
	if _, err := l.Do(t.Context(), http.MethodPost, "/v1/documents/unlucky/retry", nil, nil, nil); !asProblem(err, &p) || p.Code != forebay.CodeConflict {
		t.Errorf("a retry of what is ready: %v", err)
	}
}

func (l *library) retry(t *testing.T, id string) {
	t.Helper()
	if _, err := l.Do(t.Context(), http.MethodPost, "/v1/documents/"+id+"/retry", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func (l *library) fromSource(t *testing.T, folder string) {
	outside := filepath.Join(t.TempDir(), "secret.txt")
	for name, content := range map[string]string{filepath.Join(folder, "in the box.txt"): "Narwhals have a tusk.", outside: "secret"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(folder, "link.txt")); err != nil {
		t.Fatal(err)
	}
	d, status, err := l.upload("", "application/json", `{"url":"file://`+folder+`/in%20the%20box.txt","id":"boxed"}`)
	if err != nil || status != http.StatusAccepted || d.Name != "in the box.txt" {
		t.Fatalf("%d %+v %v", status, d, err)
	}
	if l.await("boxed"); len(l.search(forebay.SearchKeyword, "narwhals")) != 1 {
		t.Error("it is not found")
	}
	for _, url := range []string{"file://" + outside, "file://" + folder + "/../x", "file://" + folder + "/%2e%2e/x", "file://" + folder + "/link.txt",
		"file://" + folder + "/", "file://" + folder + "2/x", "s3://other/x"} {
		if _, status, err := l.upload("", "application/json", `{"url":"`+url+`"}`); err == nil || status < 400 || status >= 500 {
			t.Errorf("%s: %d, %v", url, status, err)
		}
	}
}

func (l *library) badRequests(t *testing.T) {
	for _, c := range []struct {
		query, contentType, content string
		want                        forebay.Code
	}{
		{"?id=a%2Fb", "text/plain", "x", forebay.CodeInvalidRequest},
		{"", "image/png", "x", forebay.CodeUnsupportedMedia},
		{"", "text/plain", "", forebay.CodeDocumentEmpty},
		{"?metadata=x", "text/plain", "x", forebay.CodeInvalidRequest},
		{"?what=x", "text/plain", "x", forebay.CodeUnknownField},
		{"", "multipart/form-data", "x", forebay.CodeInvalidRequest},
		{"", "application/json", `{"url":"x","what":1}`, forebay.CodeUnknownField},
	} {
		var p *servertest.Problem
		if _, _, err := l.upload(c.query, c.contentType, c.content); !asProblem(err, &p) || p.Code != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for body, want := range map[string]forebay.Code{
		`{}`: forebay.CodeInvalidRequest, `{"query":"x","mode":"y"}`: forebay.CodeInvalidRequest, `{"query":"x","limit":101}`: forebay.CodeInvalidRequest,
		`{"mode":"vector","vector":[1,2]}`: forebay.CodeDimensionsChanged, `{"mode":"vector","vector":[0` + strings.Repeat(",0", modelsim.DefaultDimensions-1) + `]}`: forebay.CodeInvalidRequest,
	} {
		var p *servertest.Problem
		if _, err := l.Do(t.Context(), http.MethodPost, "/v1/search", nil, json.RawMessage(body), nil); !asProblem(err, &p) || p.Code != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, query := range []string{`" OR tenant:t1 *`, "'; DROP TABLE chunks", "\\ & | !", "語"} {
		l.search(forebay.SearchKeyword, query)
	}
	const file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nOkapis hide.\r\n"
	form := "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{\"k\":\"v\"}\r\n" + file + "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\nformed\r\n--b--\r\n"
	if _, _, err := l.upload("", "multipart/form-data; boundary=b", form); err != nil {
		t.Fatal(err)
	}
	var p *servertest.Problem
	if _, _, err := l.upload("", "multipart/form-data; boundary=b", file+file+"--b--\r\n"); !asProblem(err, &p) || !strings.Contains(p.Detail, "twice") {
		t.Errorf("two documents: %v", err)
	}
	if d := l.await("formed"); d.Status != forebay.DocumentReady || d.Name != "a.txt" || d.Metadata["k"] != "v" {
		t.Errorf("%+v", d)
	}
}

// Deleted documents are not found. Soon nothing of them is left in the database and the blob
// storage. The dimension of the index ends with the last document, even before the remains are
// removed.
func (l *library) deleteAll(t *testing.T) {
	var page forebay.Page[forebay.Document]
	if err := l.Get(t.Context(), "/v1/documents?limit=500", &page); err != nil || len(page.Items) < 6 {
		t.Fatalf("%d documents, %v", len(page.Items), err)
	}
	for _, d := range page.Items {
		if _, err := l.Do(t.Context(), http.MethodDelete, "/v1/documents/"+d.ID, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if found := l.search(forebay.SearchKeyword, "herons quokkas submarines narwhals"); len(found) != 0 {
		t.Errorf("%v is found", documentsOf(found))
	}
	var p *servertest.Problem
	if err := l.Get(t.Context(), "/v1/documents/heron", nil); !asProblem(err, &p) || p.Code != forebay.CodeNotFound {
		t.Errorf("%v", err)
	}
	servertest.Eventually(t, time.Minute, func() error {
		if left := l.left(t); len(left) > 0 {
			return fmt.Errorf("there are left: %v", left)
		}
		return nil
	})
	l.add("last", "Bongos hide.")
	if left := l.left(t); len(left) < 7 {
		t.Errorf("of a document there are only %v", left)
	}
	if _, err := l.Do(t.Context(), http.MethodDelete, "/v1/documents/last", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	shorter := func(modelsim.Call) modelsim.Reply {
		return modelsim.Reply{Body: []byte(`{"data":[{"index":0,"embedding":[1,2,3,4]}],"model":"other"}`)}
	}
	l.embed.Store(&shorter)
	defer l.embed.Store(nil)
	if d := l.add("anew", "Another model's."); d.Status != forebay.DocumentReady {
		t.Errorf("%+v", d.Branches.Embedding)
	}
	if found := l.search(forebay.SearchVector, "x"); !slices.Equal(documentsOf(found), []string{"anew"}) {
		t.Errorf("%v is found", documentsOf(found))
	}
}

// left counts what there is of documents, by tables and kinds of blobs.
func (l *library) left(t *testing.T) map[string]int {
	t.Helper()
	left := map[string]int{}
	tables := []string{"documents", "document_revisions", "document_jobs", "document_indexes", "chunks", "chunk_vectors", "chunk_codes"}
	if path, is := strings.CutPrefix(l.database, "sqlite:"); is {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetBlockOnBusy()
		for _, table := range append(tables, "chunk_words_docsize") { // a row for each one in the index
			err := sqlitex.Execute(conn, "SELECT count(*) FROM "+table, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
				left[table] = row.ColumnInt(0)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	} else {
		pg, err := pgx.Connect(t.Context(), l.database)
		if err != nil {
			t.Fatal(err)
		}
		defer pg.Close(context.WithoutCancel(t.Context()))
		copied := false
		if err := pg.QueryRow(t.Context(), "SELECT to_regclass('forebay.chunk_halfvecs') IS NOT NULL").Scan(&copied); err != nil {
			t.Fatal(err)
		}
		if copied {
			tables = append(tables, "chunk_halfvecs")
		}
		for _, table := range tables { // the index of words is one of chunks
			n := 0
			if err := pg.QueryRow(t.Context(), "SELECT count(*) FROM forebay."+table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			left[table] = n
		}
	}
	err := filepath.WalkDir(l.blobs, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			left[entry.Name()]++
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	return left
}

// No tenant finds, reads or deletes another's documents.
func TestDocumentsOfTenants(t *testing.T) {
	t.Parallel()
	for engine, address := range documentEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			l := openLibrary(t, server.Options{Database: address(t)})
			keys := map[string]string{}
			admin := l.key(t, "boss", nil, forebay.ScopeAdmin)
			for _, tenant := range []string{"red", "blue"} {
				keys[tenant] = l.key(t, tenant, map[string]string{"Authorization": "Bearer " + admin}, forebay.ScopeSubmit, forebay.ScopeRead)
			}
			for tenant, key := range keys {
				if _, _, err := l.upload("?id=shared", "text/plain", "A common word, and the colour "+tenant+".", key); err != nil {
					t.Fatal(err)
				}
			}
			for tenant, key := range keys {
				as := map[string]string{"Authorization": "Bearer " + key}
				servertest.Eventually(t, time.Minute, func() error {
					var d forebay.Document
					_, err := l.Do(t.Context(), http.MethodGet, "/v1/documents/shared", as, nil, &d)
					if err == nil && d.Status != forebay.DocumentReady {
						err = servertest.ErrNotYet
					}
					return err
				})
				for _, mode := range []forebay.SearchMode{forebay.SearchKeyword, forebay.SearchVector, forebay.SearchHybrid} {
					var found forebay.SearchResults
					_, err := l.Do(t.Context(), http.MethodPost, "/v1/search", as, forebay.SearchRequest{Query: "common word red blue", Mode: mode}, &found)
					if err != nil || len(found.Items) != 1 || !strings.Contains(found.Items[0].Text, tenant) {
						t.Errorf("%s by %s: %+v, %v", tenant, mode, found.Items, err)
					}
				}
			}
			as := map[string]string{"Authorization": "Bearer " + keys["red"]}
			var p *servertest.Problem
			if _, err := l.Do(t.Context(), http.MethodDelete, "/v1/documents/shared", as, nil, nil); !asProblem(err, &p) || p.Code != forebay.CodeForbidden {
				t.Errorf("a key that may only submit deletes a document: %v", err)
			}
			operator := map[string]string{"Authorization": "Bearer " + l.key(t, "red", map[string]string{"Authorization": "Bearer " + admin}, forebay.ScopeOperate)}
			if _, err := l.Do(t.Context(), http.MethodDelete, "/v1/documents/shared", operator, nil, nil); err != nil {
				t.Fatal(err)
			}
			var log forebay.Page[forebay.AuditEntry]
			if _, err := l.Do(t.Context(), http.MethodGet, "/v1/audit?action=delete-document", map[string]string{"Authorization": "Bearer " + admin}, nil, &log); err != nil ||
				len(log.Items) != 1 || log.Items[0].Tenant != "red" || log.Items[0].Target != "shared" || log.Items[0].Actor == "" {
				t.Errorf("the audit log has %+v, %v", log.Items, err)
			}
			var d forebay.Document
			if _, err := l.Do(t.Context(), http.MethodGet, "/v1/documents/shared", map[string]string{"Authorization": "Bearer " + keys["blue"]}, nil, &d); err != nil || !d.Searchable {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}
