package db

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/raced"
)

// copyVariable makes this test binary a process that copies: it holds a doomedCopy as JSON.
const copyVariable = "FOREBAY_TEST_COPY"

// doomedCopy is a copy that waits for its end after so many chunks.
type doomedCopy struct {
	From, To Options
	Chunks   int
}

func init() {
	raw, ok := os.LookupEnv(copyVariable)
	if !ok {
		return
	}
	var c doomedCopy
	err := json.Unmarshal([]byte(raw), &c)
	if err == nil {
		_, err = Copy(context.Background(), c.From, c.To, func(p CopyProgress) {
			fmt.Println(p.Table, p.Rows)
			if c.Chunks--; c.Chunks == 0 {
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killedCopy runs a copy in a process that is killed after it has told of so many chunks, and
// before it has of two more.
func killedCopy(t *testing.T, from, to Options, chunks int) {
	t.Helper()
	raw, err := json.Marshal(doomedCopy{from, to, chunks + 1})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), copyVariable+"="+string(raw))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range chunks {
		if !lines.Scan() {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the copy was not killed: %v", err)
	}
}

func TestKilledCopyGoesOn(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	for _, kinds := range [][2]string{{"sqlite", "postgresql"}, {"postgresql", "sqlite"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			t.Parallel()
			from, to := engines[kinds[0]](t), engines[kinds[1]](t)
			fill(t, from, 14*maxChunkRows)
			var before int64
			for _, chunks := range []int{7, 8, 9} {
				killedCopy(t, from, to, chunks)
				rows := copiedRows(t, to)
				if rows <= before {
					t.Errorf("%d rows after %d: it did not go on", rows, before)
				}
				before = rows
			}
			var first CopyProgress
			if _, err := Copy(t.Context(), from, to, func(p CopyProgress) {
				if first.Table == "" {
					first = p
				}
			}); err != nil {
				t.Fatal(err)
			}
			if first.Table != "events" || first.Rows <= maxChunkRows {
				t.Errorf("it went on at row %d of %s", first.Rows, first.Table)
			}
			if !reflect.DeepEqual(everything(t, from), everything(t, to)) {
				t.Error("the copy is not the same")
			}
		})
	}
}

// copiedRows is how far an unfinished copy is.
func copiedRows(t *testing.T, to Options) (rows int64) {
	t.Helper()
	s, err := openTarget(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	if _, err := s.Prep("SELECT CAST(sum(copied) AS BIGINT) FROM " + copyMark).One(func(r driver.Row) { rows = r.Int(0) }); err != nil {
		t.Fatal(err)
	}
	return rows
}
