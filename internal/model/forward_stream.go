package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxForwardedEvent is the largest event of a forwarded stream. OpenAI's Go client reads lines of
// up to 32 MiB.
const maxForwardedEvent = 32<<20 + 1<<10

// rawEvents reads server-sent events as [events] does, and keeps their bytes. A block of comments,
// and a blank line between events, count as events without data.
type rawEvents struct {
	r     *bufio.Reader
	limit int
	begun bool

	raw      []byte // of the event, with its blank line
	from, to int    // the data within raw, if it is one line
	lines    int    // of data
	joined   []byte // the data, if it has several lines
	cut      bool   // the stream ended before the blank line
}

var rawEventPool = sync.Pool{New: func() any { return &rawEvents{r: bufio.NewReaderSize(nil, 8<<10)} }}

// readRawEvents returns a reader over r that refuses events above limit bytes. Release it with
// free.
func readRawEvents(r io.Reader, limit int) *rawEvents {
	s := rawEventPool.Get().(*rawEvents)
	s.r.Reset(r)
	s.limit, s.begun, s.cut = limit, false, false
	return s
}

func (s *rawEvents) free() {
	s.r.Reset(nil)
	if cap(s.raw) <= 64<<10 && cap(s.joined) <= 64<<10 {
		rawEventPool.Put(s)
	}
}

// next reads the next event. The error is io.EOF after the last event.
func (s *rawEvents) next() error {
	s.raw, s.joined, s.lines = s.raw[:0], s.joined[:0], 0
	for {
		start := len(s.raw)
		if err := s.readLine(); err != nil {
			if !errors.Is(err, io.EOF) || len(s.raw) == 0 {
				return err
			}
			s.cut = true
			s.field(start)
			return nil
		}
		if len(trimEnd(s.raw[start:])) == 0 {
			return nil
		}
		s.field(start)
	}
}

// arrived reports whether a whole event can be read without waiting.
func (s *rawEvents) arrived() bool {
	waiting, _ := s.r.Peek(s.r.Buffered())
	return bytes.Contains(waiting, []byte("\n\n")) || bytes.Contains(waiting, []byte("\n\r\n"))
}

// data returns the data of the event. It is valid until the next call of next.
func (s *rawEvents) data() []byte {
	if s.lines == 1 {
		return s.raw[s.from:s.to]
	}
	return s.joined
}

// field notes the data in the line that begins at an offset of raw.
func (s *rawEvents) field(start int) {
	line := trimEnd(s.raw[start:])
	if !s.begun {
		s.begun = true
		unmarked := bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		start += len(line) - len(unmarked)
		line = unmarked
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	if string(name) != "data" {
		return
	}
	value = bytes.TrimPrefix(value, []byte{' '})
	switch s.lines++; s.lines {
	case 1:
		s.to = start + len(line)
		s.from = s.to - len(value)
		return
	case 2:
		s.joined = append(s.joined, s.raw[s.from:s.to]...)
	}
	s.joined = append(append(s.joined, '\n'), value...)
}

// readLine appends the next line and its end to raw. The error io.EOF comes with what is left.
func (s *rawEvents) readLine() error {
	for {
		part, err := s.r.ReadSlice('\n')
		if len(s.raw)+len(part) > s.limit {
			return errTooLarge
		}
		s.raw = append(s.raw, part...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// complete adds the line ends that the last event of a stream lacks. Clients drop an event without
// its blank line.
func (s *rawEvents) complete() {
	if !bytes.HasSuffix(s.raw, []byte{'\n'}) {
		s.raw = append(s.raw, '\n')
	}
	s.raw = append(s.raw, '\n')
}
