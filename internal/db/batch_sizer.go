package db

import "time"

// batchSizer tells how many rows the writer takes into one transaction. Everybody waits for the
// transaction that is under way, so its work is to take a few milliseconds. Where the disk is
// slow, or the server far away, it takes more, so that the transactions are few. While tenants
// share the writer it takes less. A tenant waits for the rows of others twice: in the transaction
// under way and in its own.
type batchSizer struct {
	row, flush time.Duration // what a row takes, about, and what a transaction takes anyway; 0: not known
	fit        trend         // of a server's transactions, in seconds by rows
}

const (
	shortWork   = 8 * time.Millisecond
	workByFlush = 4  // the work of a transaction may take so many times what its commit does
	leastRows   = 64 // so that a slow moment does not make the transactions many

	sharedWork = 2 * time.Millisecond
	SharedRows = 16
)

// rows is how many a transaction takes. On a server a tenant that is alone waits for itself only,
// and large transactions save it most. There they are as large as can be.
func (a *batchSizer) rows(shared bool) int {
	switch {
	case a.row == 0 && shared:
		return 2 * leastRows
	case a.row == 0:
		return MaxBatchOps
	case a.fit.points > 0 && !shared:
		return MaxBatchOps
	case shared:
		return min(max(int(max(sharedWork, a.flush)/a.row), SharedRows), MaxBatchOps)
	}
	return min(max(int(max(shortWork, workByFlush*a.flush)/a.row), leastRows), MaxBatchOps)
}

// note takes in how long the work of a transaction with so many rows took, and its commit. Of a
// few rows most of the work is not theirs. The fewest that full transactions have do count:
// else one slow moment would keep them that small.
func (a *batchSizer) note(rows int, work, flush time.Duration) {
	if rows < SharedRows {
		return
	}
	row := max(work/time.Duration(rows), 1)
	if a.row == 0 {
		a.row, a.flush = row, flush
		return
	}
	a.row += (row - a.row) / 8
	a.flush += (flush - a.flush) / 8
}

// noteServer takes in how long a transaction on a server took, with so many rows. The way to the
// server and back is a part of that. The server does most of the rest within the commit. A row
// takes what transactions with more rows take longer. Few rows do not count, as in note.
func (a *batchSizer) noteServer(rows int, took, way time.Duration) {
	if rows < SharedRows {
		return
	}
	a.fit.note(float64(rows), max(took-way, 0).Seconds())
	row, anyway := a.fit.line()
	a.row = max(time.Duration(row*float64(time.Second)), 1)
	a.flush = way + time.Duration(anyway*float64(time.Second))
}

// trend is a line through the latest points, by least squares.
type trend struct {
	points float64
	x, y   float64 // means, in which each point counts less than the next
	xx, xy float64 // variance and covariance
}

const (
	trendPoints = 32 // about so many count
	// outlier times the mean is the most that counts of a point: the machine was busy with
	// something else.
	outlier = 4
)

func (t *trend) note(x, y float64) {
	if t.points >= 8 {
		y = min(y, outlier*max(t.y, t.y/t.x*x))
	}
	t.points++
	share := max(1/t.points, 1./trendPoints)
	dx, dy := x-t.x, y-t.y
	t.x, t.y = t.x+share*dx, t.y+share*dy
	t.xx = (1 - share) * (t.xx + share*dx*dx)
	t.xy = (1 - share) * (t.xy + share*dx*dy)
}

// line returns how steep the line is, and where it begins. Neither is negative. Points that are
// almost one above the other tell no line. Then a quarter of y is taken to depend on x, so that
// transactions become larger until they do tell.
func (t *trend) line() (slope, begin float64) {
	most := t.y / t.x
	slope = most / 4
	if t.xx > t.x*t.x/100 {
		slope = min(max(t.xy/t.xx, most/64), most)
	}
	return slope, t.y - slope*t.x
}
