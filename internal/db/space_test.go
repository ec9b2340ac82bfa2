package db

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	zombiezen "zombiezen.com/go/sqlite"
)

// The rows of these tests: one that is kept, at the end of the file, and small ones that come
// while it shrinks.
const (
	kept  = 1_000_000
	small = 2_000_000
)

// fillAndFree makes a file of some 100 MB of which nearly all is free, with one row at its end,
// and serves it.
func fillAndFree(t *testing.T, where Options) *DB {
	t.Helper()
	s := serve(t, where)
	for n := range int64(10) {
		mustDo(t, insertBody(t.Context(), s, n, 10<<20))
	}
	mustDo(t, insertBody(t.Context(), s, kept, 1<<20))
	_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(t *Tx) (struct{}, error) {
		return struct{}{}, t.Prep("DELETE FROM shared_bodies WHERE no <> ?").Int(kept).Exec()
	})
	mustDo(t, err)
	return s
}

func insertBody(ctx context.Context, s *DB, no int64, bytes int) error {
	_, err := Transact(ctx, s.Writer, Op{Stage: StageSubmit}, func(t *Tx) (struct{}, error) {
		return struct{}{}, t.Prep("INSERT INTO shared_bodies (no, body) VALUES (?, ?)").Int(no).Blob(make([]byte, bytes)).Exec()
	})
	return err
}

const sqlKept = "SELECT length(body) FROM shared_bodies WHERE no = ?"

// keptSize is how many bytes the row has that is kept.
func keptSize(t *testing.T, s *DB) (size int64) {
	t.Helper()
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep(sqlKept).Int(kept).One(func(r driver.Row) { size = r.Int(0) })
		return err
	}))
	return size
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	file, err := os.Stat(path)
	mustDo(t, err)
	return file.Size()
}

// intact fails the test unless SQLite finds the file in order.
func intact(t *testing.T, path string) {
	t.Helper()
	raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
	mustDo(t, err)
	defer raw.Close()
	var found string
	_, err = driver.Conn{Driver: sqlite.NewConn(raw)}.Prep("PRAGMA integrity_check").One(func(r driver.Row) { found = r.Text(0) })
	if err != nil || found != "ok" {
		t.Errorf("the file is damaged: %s %v", found, err)
	}
}

// A file shrinks while it is served and others store rows; who reads an older state still reads
// that.
func TestFileShrinksWhileServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.db")
	s := fillAndFree(t, Options{Path: path, Serve: true})
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error { return c.Prep(sqlCheckpoint).Each(nil) }))
	before := fileSize(t, path)
	if before < 100<<20 {
		t.Fatalf("the file has %d bytes", before)
	}
	reader, err := sqlite.OpenReader(path, nil)
	mustDo(t, err)
	mustDo(t, reader.Driver.(*sqlite.Conn).Run("BEGIN"))
	seen := func() (size int64) {
		_, err := reader.Prep(sqlKept).Int(kept).One(func(r driver.Row) { size = r.Int(0) })
		mustDo(t, err)
		return size
	}
	if seen() != 1<<20 {
		t.Fatal("the row is not there")
	}

	const submits = 200
	var others sync.WaitGroup
	others.Go(func() {
		for n := range int64(submits) {
			if err := insertBody(t.Context(), s, small+n, 10); err != nil {
				t.Error(err)
			}
		}
	})
	steps := 0
	for more := true; more; steps++ {
		if more, err = s.shrinkStep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	others.Wait()
	if seen() != 1<<20 {
		t.Error("who began to read before does not find the row")
	}
	mustDo(t, s.cutFile(t.Context()))
	if size := fileSize(t, path); size != before {
		t.Errorf("it was cut to %d bytes under a reader", size)
	}
	mustDo(t, reader.Close())
	mustDo(t, s.cutFile(t.Context()))

	space, _, err := s.Space(t.Context())
	mustDo(t, err)
	if after := fileSize(t, path); after > 48<<20 || after != space.Bytes || space.FreeBytes > shrinkFrom/2 {
		t.Errorf("after %d steps the file has %d bytes, the database %+v", steps, after, space)
	}
	var rows int64
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT count(*) FROM shared_bodies").One(func(r driver.Row) { rows = r.Int(0) })
		return err
	}))
	if rows != submits+1 {
		t.Errorf("%d rows", rows)
	}
	mustDo(t, s.Close())
	intact(t, path)
}

// Space is given back only when much is free, and some is kept.
func TestWhenToShrink(t *testing.T) {
	for _, c := range []struct {
		have          Space
		excess, spare bool
	}{
		{Space{Bytes: 100 << 20, FreeBytes: 60 << 20}, false, true},
		{Space{Bytes: 100 << 20, FreeBytes: 70 << 20}, true, true},
		{Space{Bytes: 400 << 20, FreeBytes: 90 << 20}, false, true},
		{Space{Bytes: 400 << 20, FreeBytes: 40 << 20}, false, false},
		{Space{Bytes: 40 << 20, FreeBytes: 31 << 20}, false, false},
	} {
		if c.have.excess() != c.excess || c.have.spare() != c.spare {
			t.Errorf("%+v: %v %v", c.have, c.have.excess(), c.have.spare())
		}
	}
}

// A server finds the free space by itself, and leaves the writer to others between the steps.
func TestShrinkingIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fillAndFree(t, Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
		defer s.Close()
		free := func() int64 {
			space, _, err := s.Space(t.Context())
			mustDo(t, err)
			return space.FreeBytes
		}
		before := free()
		const watched = 10 * time.Second
		<-time.After(shrinkLook + watched)
		synctest.Wait()
		steps := (before - free()) / (64 * 8192)
		if most := int64(watched / shrinkRest); steps < most/2 || steps > most+1 {
			t.Errorf("%d steps in %v", steps, watched)
		}
	})
}

// A file that cannot shrink is told of at each start, until it was compacted.
func TestFileOfAnEarlierVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	mustDo(t, err)
	old := sqlite.NewConn(raw)
	mustDo(t, old.Run("PRAGMA journal_mode = WAL"))
	mustDo(t, old.Migrate())
	mustDo(t, raw.Close())

	start := func() (told []string, space Space) {
		s, err := Open(t.Context(), Options{Path: path, Serve: true, Warn: func(m string) { told = append(told, m) }})
		mustDo(t, err)
		space, _, err = s.Space(t.Context())
		mustDo(t, errors.Join(err, s.Close()))
		return told, space
	}
	if told, space := start(); len(told) != 1 || !strings.Contains(told[0], "forebay compact") || space.Shrinks {
		t.Errorf("before: %q %+v", told, space)
	}
	_, err = Compact(t.Context(), Options{Path: path})
	mustDo(t, err)
	if told, space := start(); len(told) != 0 || !space.Shrinks {
		t.Errorf("after: %q %+v", told, space)
	}
	intact(t, path)
}

// What lets a file shrink leaves its pages as large as they are to be.
func TestPagesOfANewFile(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	mustDo(t, err)
	defer s.Close()
	pragma := func(name string) (value int64) {
		mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("PRAGMA " + name).One(func(r driver.Row) { value = r.Int(0) })
			return err
		}))
		return value
	}
	if size, vacuum := pragma("page_size"), pragma("auto_vacuum"); size != 8192 || vacuum != incrementally {
		t.Errorf("pages of %d bytes, auto_vacuum %d", size, vacuum)
	}
}

// shrinkVariable makes this test binary a process that serves the database of that path and
// shrinks it.
const shrinkVariable = "FOREBAY_TEST_SHRINK"

func init() {
	path, ok := os.LookupEnv(shrinkVariable)
	if !ok {
		return
	}
	s, err := Open(context.Background(), Options{Path: path, Serve: true})
	more := true
	for n := 1; more && err == nil; n++ {
		if more, err = s.shrinkStep(context.Background()); err == nil && n%20 == 0 {
			err = s.cutFile(context.Background())
		}
		fmt.Println("step")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1) // it was to be killed
}

// A process that is killed while it shrinks a file leaves it in order.
func TestKilledWhileShrinking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.db")
	s := fillAndFree(t, Options{Path: path, Serve: true})
	mustDo(t, s.Close())
	before := fileSize(t, path)
	self, err := os.Executable()
	mustDo(t, err)
	for _, steps := range []int{3, 50} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), shrinkVariable+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		mustDo(t, err)
		mustDo(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range steps {
			lines.Scan()
		}
		mustDo(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("it was not killed: %v", err)
		}
		intact(t, path)
	}
	if after := fileSize(t, path); after >= before {
		t.Errorf("it had not begun: %d bytes, %d before", after, before)
	}
	s, err = Open(t.Context(), Options{Path: path, Serve: true})
	mustDo(t, err)
	defer s.Close()
	if size := keptSize(t, s); size != 1<<20 {
		t.Errorf("of the row %d bytes are left", size)
	}
}
