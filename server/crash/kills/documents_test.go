//go:build unix

package kills_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// TestDocumentsSurviveCrashes kills a server again and again while documents go through its
// pipeline. A chunk whose vector is on disk is never embedded again, no document is found before
// it is whole, and all get there.
func TestDocumentsSurviveCrashes(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := servertest.DatabaseFile(t)
		newDocumentCrash(t, path, func() map[string]bool { return chunksInSQLite(t, path) }).run()
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		address := dbtest.Postgres(t)
		newDocumentCrash(t, address, func() map[string]bool { return chunksInPostgres(t, address) }).run()
	})
}

// documentCrash is one run.
type documentCrash struct {
	*testing.T
	options  servertest.ProcessOptions
	recorded func() map[string]bool // texts of chunks whose vectors are on disk
	model    *modelsim.TestServer

	mu       sync.Mutex
	known    map[string]bool // texts that were on disk when a server died
	embedded map[string]int
}

const (
	documentsSentences = 40
	documentAnswer     = `{"title":"Of its model","language":"en","entities":[]}` // the model's answer about each
)

func newDocumentCrash(t *testing.T, at string, recorded func() map[string]bool) *documentCrash {
	c := &documentCrash{T: t, recorded: recorded, known: map[string]bool{}, embedded: map[string]int{}}
	c.model = modelsim.StartTest(c.answer)
	t.Cleanup(c.model.Close)
	c.options = servertest.ProcessOptions{
		Database: at, Blob: "file://" + t.TempDir(), Endpoint: c.model.URL(), Shutdown: 100 * time.Millisecond,
		Documents: server.Documents{ChunkTokens: 40, OverlapTokens: 8, BatchInputs: 4},
		Queue: server.Queue{Concurrency: 8, LockDuration: time.Second, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 20 * time.Millisecond, Max: 50 * time.Millisecond, Attempts: 100, Budget: 0.5}},
	}
	return c
}

// answer is the model: slow, and now and then unable.
func (c *documentCrash) answer(call modelsim.Call) modelsim.Reply {
	delay := time.Duration(5+rand.IntN(40)) * time.Millisecond
	if rand.IntN(20) == 0 {
		return modelsim.Reply{Delay: delay, Status: http.StatusInternalServerError}
	}
	if !call.Embed {
		return modelsim.Reply{Delay: delay, Text: documentAnswer}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range call.Inputs {
		c.embedded[text]++
		if c.known[text] {
			c.Errorf("a chunk that was recorded is embedded again: %.60q", text)
		}
	}
	return modelsim.Reply{Delay: delay}
}

func (c *documentCrash) id(n int) string { return fmt.Sprintf("doc-%d", n) }

// word is one that only that document has.
func (c *documentCrash) word(n int) string { return fmt.Sprintf("unmistakable%d", n) }

func (c *documentCrash) content(n int) string {
	var b strings.Builder
	for i := range documentsSentences {
		fmt.Fprintf(&b, "Sentence %d of %d is about the %s in all its detail. ", i, n, c.word(n))
	}
	return b.String()
}

func (c *documentCrash) run() {
	documents, kills := servertest.Size(40, 12), servertest.Size(10, 4)
	sent := 0
	p := servertest.Launch(c.T, c.options)
	for round := range kills {
		s := c.connect(p)
		for ; sent < documents*(round+1)/kills; sent++ {
			if _, _, err := s.AddDocument(c.Context(), forebay.NewDocument{ID: c.id(sent), ContentType: "text/plain"}, []byte(c.content(sent))); err != nil {
				c.Fatal(err)
			}
		}
		calls := int(c.model.Stats().Calls) + 2 + rand.IntN(12)
		within, cancel := context.WithTimeout(c.Context(), 3*time.Second)
		// The last round may have too few calls left.
		_ = c.model.Await(within, func(st modelsim.Stats) bool { return int(st.Calls) >= calls })
		cancel()
		c.whole(s, rand.IntN(sent))
		p.Kill()
		c.learn()
		p = servertest.Launch(c.T, c.options)
	}
	s := c.connect(p)
	for n := range documents {
		within, cancel := context.WithTimeout(c.Context(), time.Minute)
		d, err := s.WaitDocument(within, c.id(n))
		cancel()
		if err != nil {
			c.Fatal(err)
		}
		if d.Status != forebay.DocumentReady || d.Branches.Embedding.Done != d.Chunks || d.Chunks < 10 {
			c.Errorf("%s: %+v", d.ID, d)
		}
		if found := c.search(s, n); len(found) != forebay.DefaultSearchResults || found[0].DocumentID != d.ID {
			c.Errorf("%s is found %d times", d.ID, len(found))
		}
	}
	p.Stop(c)
	c.learn()
	repeated := 0
	for text := range c.known {
		if c.embedded[text] > 1 {
			repeated++
		}
	}
	c.Logf("%d chunks, %d of them embedded more than once", len(c.known), repeated)
	if len(c.known) != len(c.embedded) {
		c.Errorf("%d chunks were embedded, %d are recorded", len(c.embedded), len(c.known))
	}
}

// whole looks whether what is found of a document is found because all of it is there.
func (c *documentCrash) whole(s *client.Client, n int) {
	found := c.search(s, n)
	d, err := s.Document(c.Context(), c.id(n))
	if err != nil {
		c.Fatal(err)
	}
	if len(found) > 0 && d.Status != forebay.DocumentReady {
		c.Errorf("%s is found and %s", d.ID, d.Status)
	}
}

// search returns what is found by the word of a document.
func (c *documentCrash) search(s *client.Client, n int) []forebay.SearchResult {
	c.Helper()
	found, err := s.Search(c.Context(), forebay.SearchRequest{Query: c.word(n), Mode: forebay.SearchKeyword})
	if err != nil {
		c.Fatal(err)
	}
	return found.Items
}

// connect returns a client of a process that has to listen.
func (c *documentCrash) connect(p *servertest.Process) *client.Client {
	c.Helper()
	s, err := client.New(client.Options{BaseURL: p.MustListen(c.T)})
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// learn reads, when no server runs, what is on disk.
func (c *documentCrash) learn() {
	recorded := c.recorded()
	c.mu.Lock()
	defer c.mu.Unlock()
	for text := range c.known {
		if !recorded[text] {
			c.Errorf("a chunk is not there any more: %.60q", text)
		}
	}
	c.known = recorded
}

const sqlRecordedChunks = "SELECT c.text FROM chunks c JOIN chunk_codes k ON k.chunk = c.no JOIN chunk_vectors v ON v.chunk = c.no"

func chunksInSQLite(t *testing.T, path string) map[string]bool {
	t.Helper()
	texts := map[string]bool{}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err == nil {
		err = sqlitex.Execute(conn, sqlRecordedChunks, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			texts[row.ColumnText(0)] = true
			return nil
		}})
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func chunksInPostgres(t *testing.T, address string) map[string]bool {
	t.Helper()
	texts := map[string]bool{}
	pg, err := pgconn.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(context.WithoutCancel(t.Context()))
	results, err := pg.Exec(t.Context(), "SET search_path = forebay; "+sqlRecordedChunks).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range results[len(results)-1].Rows {
		texts[string(row[0])] = true
	}
	return texts
}
