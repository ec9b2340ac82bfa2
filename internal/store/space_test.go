package store

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

	"zombiezen.com/go/sqlite"
)

// fillAndFree makes a file of some 100 MB of which nearly all is free, with one job at its end, and serves it.
func fillAndFree(t *testing.T, where Options) (s *Store, tenant, queue int64) {
	t.Helper()
	s, tenant, queue = openWith(t, where)
	put(t, s, tenant, queue, 10, func(j *NewJob) { j.Input = make([]byte, 10<<20) })
	put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID, j.Input = "job_kept", make([]byte, 1<<20) })
	_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep("DELETE FROM jobs WHERE id <> 'job_kept'").exec()
	})
	mustDo(t, err)
	return s, tenant, queue
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
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	mustDo(t, err)
	defer raw.Close()
	var found string
	_, err = conn{driver: newSQLiteConn(raw)}.prep("PRAGMA integrity_check").one(func(r row) { found = r.text(0) })
	if err != nil || found != "ok" {
		t.Errorf("the file is damaged: %s %v", found, err)
	}
}

// A file shrinks while it is served and others submit; who reads an older state still reads that.
func TestFileShrinksWhileServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.db")
	s, tenant, queue := fillAndFree(t, Options{Path: path, Serve: true})
	mustDo(t, s.DB.read(t.Context(), func(c conn) error { return c.prep(sqlCheckpoint).each(nil) }))
	before := fileSize(t, path)
	if before < 100<<20 {
		t.Fatalf("the file has %d bytes", before)
	}
	reader, err := openReader(path, nil)
	mustDo(t, err)
	mustDo(t, reader.driver.(*sqliteConn).run("BEGIN"))
	kept := func() (size int64) {
		_, err := reader.prep("SELECT length(input) FROM jobs WHERE id = 'job_kept'").one(func(r row) { size = r.int(0) })
		mustDo(t, err)
		return size
	}
	if kept() != 1<<20 {
		t.Fatal("the job is not there")
	}

	const submits = 200
	var others sync.WaitGroup
	others.Go(func() { put(t, s, tenant, queue, submits, nil) })
	steps := 0
	for more := true; more; steps++ {
		if more, err = s.DB.shrinkStep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	others.Wait()
	if kept() != 1<<20 {
		t.Error("who began to read before does not find the job")
	}
	mustDo(t, s.DB.cutFile(t.Context()))
	if size := fileSize(t, path); size != before {
		t.Errorf("it was cut to %d bytes under a reader", size)
	}
	mustDo(t, reader.Close())
	mustDo(t, s.DB.cutFile(t.Context()))

	space, _, err := s.DB.Space(t.Context())
	mustDo(t, err)
	if after := fileSize(t, path); after > 48<<20 || after != space.Bytes || space.FreeBytes > shrinkFrom/2 {
		t.Errorf("after %d steps the file has %d bytes, the database %+v", steps, after, space)
	}
	var jobs int64
	mustDo(t, s.DB.read(t.Context(), func(c conn) error {
		_, err := c.prep("SELECT count(*) FROM jobs").one(func(r row) { jobs = r.int(0) })
		return err
	}))
	if jobs != submits+1 {
		t.Errorf("%d jobs", jobs)
	}
	mustDo(t, s.DB.Close())
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
		s, _, _ := fillAndFree(t, Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
		defer s.DB.Close()
		free := func() int64 {
			space, _, err := s.DB.Space(t.Context())
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
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	mustDo(t, err)
	old := newSQLiteConn(raw)
	mustDo(t, old.run("PRAGMA journal_mode = WAL"))
	mustDo(t, old.migrate())
	mustDo(t, raw.Close())

	start := func() (told []string, space Space) {
		s, err := Open(t.Context(), Options{Path: path, Serve: true, Warn: func(m string) { told = append(told, m) }})
		mustDo(t, err)
		space, _, err = s.DB.Space(t.Context())
		mustDo(t, errors.Join(err, s.DB.Close()))
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
	defer s.DB.Close()
	pragma := func(name string) (value int64) {
		mustDo(t, s.DB.read(t.Context(), func(c conn) error {
			_, err := c.prep("PRAGMA " + name).one(func(r row) { value = r.int(0) })
			return err
		}))
		return value
	}
	if size, vacuum := pragma("page_size"), pragma("auto_vacuum"); size != 8192 || vacuum != incrementally {
		t.Errorf("pages of %d bytes, auto_vacuum %d", size, vacuum)
	}
}

// shrinkVariable makes this test binary a process that serves the database of that path and shrinks it.
const shrinkVariable = "FOREBAY_TEST_SHRINK"

func init() {
	path, ok := os.LookupEnv(shrinkVariable)
	if !ok {
		return
	}
	s, err := Open(context.Background(), Options{Path: path, Serve: true})
	more := true
	for n := 1; more && err == nil; n++ {
		if more, err = s.DB.shrinkStep(context.Background()); err == nil && n%20 == 0 {
			err = s.DB.cutFile(context.Background())
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
	s, tenant, _ := fillAndFree(t, Options{Path: path, Serve: true})
	mustDo(t, s.DB.Close())
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
	defer s.DB.Close()
	if _, err := s.Jobs.Job(t.Context(), tenant, "job_kept"); err != nil {
		t.Error(err)
	}
}
