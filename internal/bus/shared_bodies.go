package bus

import "bytes"

// minSharedBytes is the size from which copies share one row for their body and their common
// properties and sections.
const minSharedBytes = 4 << 10

// sharing is the row that copies of a message share.
type sharing struct {
	no         int64 // of its row in shared_bodies
	properties []byte
	stored     bool // the row exists
	perhaps    bool // the row exists unless its last copy went
}

// shareAmong lets so many copies of a message share its body, if that is worth a row of its own
// under that number. It returns the size of each copy, with the body counted once for all.
func (a *arrival) shareAmong(no int64, copies int) (size int64) {
	size = a.Size()
	common := int64(len(a.Body) + len(a.Properties) + len(a.AMQP))
	switch {
	case a.share != nil: // it shares with the copies it was forwarded from
		return size - int64(len(a.Body)+len(a.AMQP))
	case copies < 2 || common < minSharedBytes:
		return size
	}
	a.share = &sharing{no: no, properties: a.Properties}
	return size - common + common/int64(copies)
}

// stored is what a copy stores itself of its content.
type stored struct {
	properties, body, amqp []byte
	shared                 int64 // the row that has the rest; 0: there is none
}

// shares returns what a copy stores itself, and the row that it shares. The first copy creates the
// shared row, so that no row is without a copy.
func (t *arrivalTx) shares(a arrival) (own stored, err error) {
	s := a.share
	if s == nil {
		return stored{properties: a.Properties, body: a.Body, amqp: a.AMQP}, nil
	}
	if !s.stored {
		content := a.Body
		if content == nil {
			content = []byte{}
		}
		sql := sqlShareBody
		if s.perhaps {
			sql = sqlShareAgain
		}
		if err := t.Prep(sql).Int(s.no).Blob(content).Blob(s.properties).Blob(a.AMQP).Exec(); err != nil {
			return own, err
		}
		s.stored = true
	}
	own = stored{properties: a.Properties, shared: s.no}
	if s.properties != nil && bytes.Equal(own.properties, s.properties) {
		own.properties = nil
	}
	return own, nil
}

const (
	sqlShareBody = "INSERT INTO shared_bodies (no, body, properties, amqp) VALUES (?, ?, ?, ?)"
	// sqlShareAgain keeps its place behind what deletes the last copy: it has no form for many.
	sqlShareAgain = sqlShareBody + " ON CONFLICT (no) DO NOTHING"
)

// keepShare lets a message that was just deleted, and enters a queue again, share its body as
// before. The body may be gone with the message if that was its last copy. Where a statement
// costs a round trip it is stored again, not asked for.
func (t *arrivalTx) keepShare(a *arrival) error {
	if a.share == nil {
		return nil
	}
	if t.W.Shared() {
		a.share.stored, a.share.perhaps = false, true
		return nil
	}
	kept, err := t.any("SELECT 1 FROM shared_bodies WHERE no = ?", a.share.no)
	if !kept {
		a.share = nil
	}
	return err
}
