package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
)

const (
	linesAhead = 128 // lines read ahead of their reader
	// BytesAhead is how many bytes of small lines are read ahead of their reader.
	BytesAhead = 1 << 20
	// linesIdle is how long a client may send nothing.
	linesIdle = 2 * time.Minute
)

// Line is a line that is not blank, or the reason why it could not be read.
type Line struct {
	Number  int // from 1; blank lines count
	Data    []byte
	Err     *forebay.Error
	Release func() // of the memory the data takes
}

// LinesOptions say how to split a body into lines. All are needed.
type LinesOptions struct {
	Body            io.Reader
	SetReadDeadline func(time.Time) error
	Memory          *memory.Pool
	Tenant          string // whose memory it is
	MaxBytes        int64  // of one line
	MaxLines        int
	// Refusal is what the client is told where reading stops. The error is one of the body, of the
	// context, or [panics.ErrPanicked].
	Refusal func(error) *forebay.Error
	Log     *slog.Logger
}

// Lines splits a body into lines, and reads ahead. Small lines wait in a bounded buffer. A large
// line claims memory like any large body. A line that is too large fails alone.
type Lines struct {
	options LinesOptions
	ctx     context.Context
	out     chan Line
	ahead   *semaphore.Weighted
	number  int
	large   *Pace         // pace of the large line being read
	claim   *memory.Claim // the memory for reading ahead
}

// ReadLines begins to read. The caller ends the context and then calls Close.
func ReadLines(ctx context.Context, o LinesOptions) *Lines {
	l := &Lines{options: o, ctx: ctx, out: make(chan Line, linesAhead), ahead: semaphore.NewWeighted(BytesAhead), claim: o.Memory.Claim(o.Tenant)}
	if !l.claim.TryGrow(BytesAhead) { // it reads ahead as far as memory allows
		l.ahead = semaphore.NewWeighted(FreeBytes)
	}
	go l.run()
	return l
}

// Close waits for the end of reading, and gives back all memory of lines that were not taken.
func (l *Lines) Close() {
	for line := range l.out {
		line.Release()
	}
	l.claim.Release()
}

// Next waits for a line. It returns it with those that are ready behind it, at most that many, or
// none after the last one.
func (l *Lines) Next(most int) []Line {
	first, ok := <-l.out
	if !ok {
		return nil
	}
	lines := []Line{first}
	for len(lines) < most {
		select {
		case line, ok := <-l.out:
			if !ok {
				return lines
			}
			lines = append(lines, line)
		default:
			return lines
		}
	}
	return lines
}

// run reads until the body ends, and closes the channel.
func (l *Lines) run() {
	defer close(l.out)
	if err := panics.Run(l.options.Log, "reading a bulk submit", func() error { l.read(); return nil }); err != nil {
		l.refuse(l.options.Refusal(err))
	}
}

func (l *Lines) read() {
	body := bufio.NewReaderSize(deadlined{l}, FreeBytes)
	for {
		l.number++
		line, err := l.next(body)
		if err == nil || errors.Is(err, io.EOF) {
			if line.Err == nil && len(bytes.TrimSpace(line.Data)) == 0 {
				line.Release()
			} else if !l.send(line) {
				return
			}
			if err != nil {
				return
			}
			if l.number < l.options.MaxLines {
				continue
			}
			if _, err = body.Peek(1); err != nil {
				return
			}
			l.number++
			l.refuse(forebay.Invalid("body", "may have at most %d lines; this and what follows was not read", l.options.MaxLines))
			return
		}
		line.Release()
		l.refuse(l.options.Refusal(err))
		return
	}
}

// next reads one line. The error is io.EOF with the last line, which may be empty. A line with its
// own error was skipped.
func (l *Lines) next(body *bufio.Reader) (line Line, err error) {
	line = Line{Number: l.number, Release: func() {}}
	part, err := body.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		line.Data = bytes.Clone(part)
		if size := int64(len(part)); size > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if taken := l.ahead.Acquire(l.ctx, size); taken != nil {
				return line, taken
			}
			line.Release = func() { l.ahead.Release(size) }
		}
		return line, err
	}
	return l.nextLarge(body, part)
}

// nextLarge reads the rest of a line that begins with part, and claims memory as it arrives.
func (l *Lines) nextLarge(body *bufio.Reader, part []byte) (line Line, err error) {
	claim := l.options.Memory.Claim(l.options.Tenant)
	claim.Expect(l.options.MaxBytes)
	paced := NewPace(ReadBytesPerSecond)
	l.large = &paced
	defer func() { l.large = nil }()
	line = Line{Number: l.number, Release: claim.Release}
	for err = bufio.ErrBufferFull; ; {
		var refused *forebay.Error
		if size := len(line.Data) + len(part); int64(size) > l.options.MaxBytes {
			refused = TooLarge("body", l.options.MaxBytes)
		} else if more := min(l.options.MaxBytes, 2*int64(size)); size > cap(line.Data) {
			if claim.Grow(l.ctx, more-int64(cap(line.Data))) != nil {
				refused = memory.ErrFull
			} else {
				line.Data = append(make([]byte, 0, more), line.Data...)
			}
		}
		if refused != nil {
			line.Release() // skipping the line may take long
			line = Line{Number: l.number, Err: refused, Release: func() {}}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = skipLine(body)
			}
			return line, err
		}
		line.Data = append(line.Data, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		part, err = body.ReadSlice('\n')
	}
}

// skipLine reads to the end of the line.
func skipLine(body *bufio.Reader) error {
	for {
		if _, err := body.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// deadlined reads from the body of lines with a deadline.
type deadlined struct{ *Lines }

func (l deadlined) Read(p []byte) (int, error) {
	begun, patience := time.Now(), linesIdle
	if l.large != nil {
		patience = l.large.Left()
	}
	_ = l.options.SetReadDeadline(begun.Add(patience)) // writers without deadlines occur only in tests
	if err := l.ctx.Err(); err != nil {
		return 0, err // its deadline may just have been overwritten
	}
	n, err := l.options.Body.Read(p)
	if l.large != nil {
		l.large.Moved(n, time.Since(begun))
	}
	return n, err
}

func (l *Lines) send(line Line) bool {
	select {
	case l.out <- line:
		return true
	case <-l.ctx.Done():
		line.Release()
		return false
	}
}

// refuse answers the line at which reading stops. The answer must arrive even if the context has
// ended. The receiver reads until the channel closes.
func (l *Lines) refuse(err *forebay.Error) {
	l.out <- Line{Number: l.number, Err: err, Release: func() {}}
}
