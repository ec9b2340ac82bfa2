package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

var errTooLarge = errors.New("stream too large")

// events reads a stream of server-sent events (WHATWG HTML, section 9.2). It skips comments and
// all fields but event and data. Lines end in LF or CRLF. The standard also allows a bare CR,
// which no model server sends. The last event may lack its blank line.
type events struct {
	r     *bufio.Reader
	limit int // of one event, in bytes
	line  []byte
	name  []byte
	data  []byte
	begun bool
}

var eventPool = sync.Pool{New: func() any { return &events{r: bufio.NewReaderSize(nil, 8<<10)} }}

// readEvents returns a reader over r that refuses events above limit bytes. Release it with free.
func readEvents(r io.Reader, limit int) *events {
	s := eventPool.Get().(*events)
	s.r.Reset(r)
	s.limit, s.begun = limit, false
	return s
}

func (s *events) free() {
	s.r.Reset(nil)
	if cap(s.data) <= 64<<10 && cap(s.line) <= 64<<10 {
		eventPool.Put(s)
	}
}

// next returns the next event with data. Both slices are valid until the next call. The error is
// io.EOF after the last event.
func (s *events) next() (name, data []byte, err error) {
	s.name, s.data = s.name[:0], s.data[:0]
	has := false
	for {
		line, err := s.readLine()
		if err != nil {
			if errors.Is(err, io.EOF) && has {
				return s.name, s.data, nil
			}
			return nil, nil, err
		}
		if len(line) == 0 {
			if has {
				return s.name, s.data, nil
			}
			s.name = s.name[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if has {
				s.data = append(s.data, '\n')
			}
			if len(s.data)+len(value) > s.limit {
				return nil, nil, errTooLarge
			}
			s.data, has = append(s.data, value...), true
		case "event":
			s.name = append(s.name[:0], value...)
		}
	}
}

// readLine returns the next line without its end. The last line may lack its end.
func (s *events) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		part, err := s.r.ReadSlice('\n')
		if !s.begun {
			s.begun = true
			part = bytes.TrimPrefix(part, []byte("\xef\xbb\xbf"))
		}
		if err == nil && len(s.line) == 0 {
			return trimEnd(part), nil
		}
		if len(s.line)+len(part) > s.limit+64 {
			return nil, errTooLarge
		}
		s.line = append(s.line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(s.line) > 0:
			return trimEnd(s.line), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}
