package bus

import "bytes"

// sharedLeast is from how many bytes on copies have their body, and the properties that they have in common, in one row.
const minSharedBytes = 4 << 10

// sharing is what the copies of a message have in common.
type sharing struct {
	no         int64 // of its row in shared_bodies
	properties []byte
	stored     bool // it stands there already
}

// shareAmong has so many copies of a message share its body if that is worth a row of its own, under that number. It returns
// how many bytes each copy then takes, the body counted once.
func (a *arrival) shareAmong(no int64, copies int) (size int64) {
	size = a.Size()
	common := int64(len(a.Body) + len(a.Properties))
	switch {
	case a.share != nil: // with those that it comes from
		return size - int64(len(a.Body))
	case copies < 2 || common < minSharedBytes:
		return size
	}
	a.share = &sharing{no: no, properties: a.Properties}
	return size - common + common/int64(copies)
}

// shares returns what the row of a copy is to hold of its properties and body, and the row that it shares; 0: none. The first
// copy stores that row, so that there is none without a copy.
func (t *Tx) shares(a arrival) (properties, body []byte, no int64, err error) {
	s := a.share
	if s == nil {
		return a.Properties, a.Body, 0, nil
	}
	if !s.stored {
		content := a.Body
		if content == nil {
			content = []byte{}
		}
		if err := t.Prep("INSERT INTO shared_bodies (no, body, properties) VALUES (?, ?, ?)").Int(s.no).Blob(content).Blob(s.properties).Exec(); err != nil {
			return nil, nil, 0, err
		}
		s.stored = true
	}
	if properties = a.Properties; s.properties != nil && bytes.Equal(properties, s.properties) {
		properties = nil
	}
	return properties, nil, s.no, nil
}
