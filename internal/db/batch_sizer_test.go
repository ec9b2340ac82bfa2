package db

import (
	"math/rand/v2"
	"testing"
	"time"
)

// On a server most of the work of rows is part of the commit. What they take is learned all the
// same, from transactions of several sizes.
func TestWhatRowsTakeOnAServerIsLearned(t *testing.T) {
	for name, c := range map[string]struct {
		shared           bool
		row, anyway, way time.Duration
		want             int
	}{
		"near, alone":          {false, 20 * time.Microsecond, time.Millisecond, 100 * time.Microsecond, MaxBatchOps},
		"near, shared":         {true, 20 * time.Microsecond, time.Millisecond, 100 * time.Microsecond, 100},
		"far, shared":          {true, 20 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 550},
		"slow rows, shared":    {true, time.Millisecond, time.Millisecond, 100 * time.Microsecond, SharedRows},
		"a slow disk, shared":  {true, 50 * time.Microsecond, 20 * time.Millisecond, 100 * time.Microsecond, 402},
		"nothing but the disk": {true, 100 * time.Nanosecond, 2 * time.Millisecond, 100 * time.Microsecond, MaxBatchOps},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var a batchSizer
			for n := range 2000 {
				rows := 1 + random.IntN(a.rows(c.shared)) // what waits is often less
				took := c.way + c.anyway + time.Duration(rows)*c.row
				took += time.Duration(random.Int64N(int64(took)/4 + 1)) // a machine that is busy
				if n%50 == 49 {
					took += 100 * time.Millisecond // and sometimes stops
				}
				a.noteServer(rows, took, c.way)
			}
			if got := a.rows(c.shared); got < c.want/3 || got > c.want*3 {
				t.Errorf("a transaction takes %d rows, want about %d: %v", got, c.want, a)
			}
		})
	}
}

// Where all transactions are alike, they become larger until they differ.
func TestTransactionsThatAreAlikeOnAServerGrow(t *testing.T) {
	var a batchSizer
	for range 200 {
		rows := a.rows(true)
		a.noteServer(rows, 10*time.Millisecond+time.Duration(rows)*10*time.Microsecond, 0)
	}
	if got := a.rows(true); got < MaxBatchOps/2 {
		t.Errorf("a transaction takes %d rows", got)
	}
}
