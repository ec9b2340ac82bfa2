package floors_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/floors"
)

// known are floors where the part "q" has one at 100. The next row is ready at 200.
func known(t *testing.T) *floors.Floors[string] {
	t.Helper()
	f := &floors.Floors[string]{On: true}
	f.Sweep(100, time.Second, true)
	if at := f.Ready("q", 100); at != 0 {
		t.Fatalf("the first scan begins at %d", at)
	}
	f.Empty("q", 100, 200)
	f.Committed(time.Millisecond)
	return f
}

func wants(t *testing.T, f *floors.Floors[string], now, ready, next int64) {
	t.Helper()
	if at := f.Ready("q", now); at != ready {
		t.Errorf("at %d a scan for ready rows begins at %d, not at %d", now, at, ready)
	}
	if at := f.Next("q", now); at != next {
		t.Errorf("at %d a search for the next row begins after %d, not after %d", now, at, next)
	}
}

func TestScanBeginsWhereTheLastOneEnded(t *testing.T) {
	f := known(t)
	wants(t, f, 150, 100, 199)
	f.Taken("q", 130)
	f.Taken("q", 140)
	wants(t, f, 150, 140, 199)
	wants(t, f, 300, 140, 300)
	f.Empty("q", 300, 0)
	wants(t, f, 310, 300, 1<<63-2)
}

// A row that gets its old place back is before the floor.
func TestEarlierRowLowersTheFloor(t *testing.T) {
	f := known(t)
	f.Note("q", 50, 150)
	wants(t, f, 150, 50, 199)
	f.Taken("q", 50)
	f.Taken("q", 130)
	wants(t, f, 150, 130, 199)
	f.Note("q", 180, 150)
	wants(t, f, 150, 130, 179)
}

// A row that comes while a scan is under way may be missing in what that has read.
func TestRowThatComesDuringAScanIsNotPassed(t *testing.T) {
	f := known(t)
	f.Ready("q", 150)
	f.Note("q", 120, 150)
	f.Taken("q", 130)
	wants(t, f, 160, 120, 199)
	f.Ready("q", 170)
	f.Note("q", 160, 170)
	f.Empty("q", 170, 0)
	wants(t, f, 180, 160, 1<<63-2)
}

func TestClockThatWentBackScansFromTheBeginning(t *testing.T) {
	f := known(t)
	wants(t, f, 99, 0, 199)
	f.Taken("q", 50)
	wants(t, f, 150, 50, 199) // what is between was not taken
}

// What a failed transaction has taken is there again.
func TestFloorsOfAFailedTransactionAreForgotten(t *testing.T) {
	f := known(t)
	f.Ready("q", 150)
	f.Taken("q", 140)
	f.Note("q", 90, 150) // by another process, meanwhile
	f.RolledBack()
	wants(t, f, 150, 90, 199)
}

func TestSweepBeginsAtTheBeginning(t *testing.T) {
	f := known(t)
	f.Sweep(1099, time.Second, false)
	wants(t, f, 1099, 100, 1099)
	f.Sweep(1100, time.Second, false)
	f.RolledBack() // it took too long
	wants(t, f, 1100, 100, 1100)
	f.Sweep(1150, time.Second, true)
	wants(t, f, 1150, 0, 1150)
}

// Sweeps that take long are rare.
func TestCostlySweepsAreRare(t *testing.T) {
	f := known(t)
	f.Sweep(2000, time.Second, false)
	f.Ready("q", 2000)
	f.Empty("q", 2000, 0)
	f.Committed(101 * time.Millisecond) // a tenth of a second more than usual
	f.Sweep(11_000, time.Second, false)
	wants(t, f, 11_000, 2000, 1<<63-2)
	f.Sweep(13_000, time.Second, false)
	wants(t, f, 13_000, 0, 13_000)
}

// A first scan of a part begins at the beginning, too. That need not take longer than others.
func TestNewPartsDoNotMakeSweepsRare(t *testing.T) {
	f := known(t)
	for i := range int64(200) {
		f.Ready(string(rune('A'+i)), 100+i)
		f.Committed(time.Duration(i%3) * time.Millisecond)
	}
	f.Sweep(1100, time.Second, false)
	wants(t, f, 1100, 0, 1100)
}

func TestDatabaseWithoutOldEntriesHasNoFloors(t *testing.T) {
	f := &floors.Floors[string]{}
	f.Taken("q", 130)
	f.Empty("q", 140, 200)
	wants(t, f, 150, 0, 150)
}
