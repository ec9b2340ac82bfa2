package report

import (
	"math/rand/v2"

	"github.com/forebayhq/forebay/internal/db"
)

// Bounds of parts.
const (
	partSize  = 128  // changes of a part
	maxHeld   = 4096 // keys of which a writer remembers the part
	mostFolds = 32   // parts that one transaction adds to part 0
)

// parts say to which row of a sum a transaction adds. Each transaction changes the same few sums.
// PostgreSQL keeps every version of a row for as long as any snapshot on the server may see it,
// and who changes the row passes them all. So a sum that changes often has a row of its own for
// some changes, a part. Then the next part begins, and the full one is added to part 0. That
// changes once for each part.
//
// A part that its process has left behind stays, and counts. So does one that two processes use,
// or that is used again.
type parts struct {
	on     bool  // a database that keeps no old versions needs no parts
	size   int64 // changes of a part
	held   map[hourKey]*part
	latest int64  // the number of the latest part
	at     int64  // parts of earlier hours have ended
	full   []left // to be added to part 0
	// What the transaction has changed, which counts again if that fails.
	changes []change
	before  int64 // what at was
	filled  int   // at the end of full
	folded  int   // at the beginning of full
}

// newParts are those of a writer.
func newParts(w *db.Writer) parts { return parts{on: w.Shared(), size: partSize} }

type part struct{ no, changes int64 }

// left is a part that gets no more.
type left struct {
	key hourKey
	no  int64
}

// change is what a key had before.
type change struct {
	key  hourKey
	part *part
}

// of returns the part to which a transaction adds, which it does once for each key.
func (p *parts) of(key hourKey, now int64) int64 {
	if !p.on {
		return 0
	}
	held := p.held[key]
	switch {
	case held != nil && held.changes < p.size:
		held.changes++
		return held.no
	case held != nil:
		p.leave(key)
	case rand.Int64N(p.size) > 0: // nothing is remembered of keys that change rarely
		return 0
	case len(p.held) >= maxHeld:
		for other := range p.held {
			p.leave(other)
			break
		}
	}
	p.latest = max(p.latest+1, now) // one that no process has used
	p.set(key, &part{no: p.latest, changes: 1})
	return p.latest
}

// set gives a key another part; nil: part 0.
func (p *parts) set(key hourKey, to *part) {
	p.changes = append(p.changes, change{key, p.held[key]})
	p.restore(key, to)
}

func (p *parts) restore(key hourKey, to *part) {
	switch {
	case to == nil:
		delete(p.held, key)
	case p.held == nil:
		p.held = map[hourKey]*part{}
		fallthrough
	default:
		p.held[key] = to
	}
}

// leave ends the part of a key.
func (p *parts) leave(key hourKey) {
	p.full = append(p.full, left{key, p.held[key].no})
	p.filled++
	p.set(key, nil)
}

// fold returns parts that the transaction is to add to part 0. at is the present hour: sums of
// earlier ones hardly change any more.
func (p *parts) fold(at int64) []left {
	if at > p.at {
		for key := range p.held {
			if key.hour < at {
				p.leave(key)
			}
		}
		p.at = at
	}
	p.folded = min(len(p.full), mostFolds)
	return p.full[:p.folded]
}

func (p *parts) committed() {
	if p.full = p.full[p.folded:]; len(p.full) == 0 {
		p.full = nil
	}
	p.changes, p.before, p.filled, p.folded = nil, p.at, 0, 0
}

func (p *parts) rolledBack() {
	for i := len(p.changes) - 1; i >= 0; i-- {
		p.restore(p.changes[i].key, p.changes[i].part)
	}
	p.full = p.full[:len(p.full)-p.filled]
	p.changes, p.at, p.filled, p.folded = nil, p.before, 0, 0
}
