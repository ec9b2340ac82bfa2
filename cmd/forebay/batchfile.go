package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// maxLineBytes limits a line of a batch or results file. A line holds an input or a result and
// some more.
const maxLineBytes = maxInputBytes + 1<<20

// batchFile is a checked file of submit requests.
type batchFile struct {
	*os.File
	id          string // of its content and of what the flags add to it
	jobs        int    // lines that are not blank
	lines       map[int]bool
	task, queue string
}

// openBatchFile reads the whole file once, so that a wrong line is found before any job is
// submitted.
func openBatchFile(ctx context.Context, o batchOptions) (*batchFile, error) {
	f, err := os.Open(o.file)
	if err != nil {
		return nil, command.Usagef("cannot read %s: %s", o.file, command.Cause(err))
	}
	b := &batchFile{File: f, task: o.task, queue: o.queue, lines: map[int]bool{}}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q\n", o.task, o.queue)
	err = b.each(io.TeeReader(f, hash), func(number int, line []byte) error {
		if _, err := b.request(number, line); err != nil {
			return err
		}
		b.jobs++
		b.lines[number] = true
		return ctx.Err()
	})
	if err == nil && b.jobs == 0 {
		err = command.Usagef("%s holds no jobs", filepath.Base(o.file))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.id = hex.EncodeToString(hash.Sum(nil)[:16])
	return b, nil
}

// each visits the lines that are not blank.
func (b *batchFile) each(r io.Reader, visit func(number int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if len(line) == 0 {
			continue
		}
		if err := visit(number, line); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return b.wrong(number+1, "has more than %d bytes", maxLineBytes)
	case err != nil:
		return command.Usagef("cannot read %s: %s", b.Name(), command.Cause(err))
	}
	return nil
}

func (b *batchFile) wrong(number int, format string, args ...any) error {
	return command.Usagef("%s:%d: %s", filepath.Base(b.Name()), number, fmt.Sprintf(format, args...))
}

// request parses one line. Unknown fields are errors.
func (b *batchFile) request(number int, line []byte) (forebay.SubmitRequest, error) {
	var req forebay.SubmitRequest
	if err := jsoncheck.Check("", line); err != nil {
		return req, b.wrong(number, "%s", err)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, b.wrong(number, "is not a submit request: %s", err)
	}
	if req.Task == "" {
		req.Task = b.task
	}
	if req.Queue == "" {
		req.Queue = b.queue
	}
	switch {
	case req.Task == "":
		return req, b.wrong(number, "names no task; give it by --task")
	case req.Input == nil:
		return req, b.wrong(number, "has no input")
	}
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = fmt.Sprintf("batch-%s-%d", b.id, number)
	}
	return req, nil
}

// batchRequests reads the lines without a result as submit requests.
type batchRequests struct {
	file *batchFile
	done map[int]bool
	err  error

	mu      sync.Mutex
	numbers []int // of the lines handed out, in order
}

func (b *batchFile) requests(done map[int]bool) *batchRequests {
	return &batchRequests{file: b, done: done}
}

// each is the sequence of requests. After it has ended, err holds what went wrong.
func (r *batchRequests) each(yield func(forebay.SubmitRequest) bool) {
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		r.err = command.Usagef("cannot read %s a second time: %s", r.file.Name(), command.Cause(err))
		return
	}
	errStop := errors.New("stop")
	err := r.file.each(r.file, func(number int, line []byte) error {
		if r.done[number] {
			return nil
		}
		req, err := r.file.request(number, line)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.numbers = append(r.numbers, number)
		r.mu.Unlock()
		if !yield(req) {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		r.err = err
	}
}

// number is the line of the n-th request handed out.
func (r *batchRequests) number(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbers[n-1]
}

// statusRejected is the status of a line that the server refused. Such a line has no job.
const statusRejected forebay.Status = "rejected"

// batchResult is one line of a results file.
type batchResult struct {
	Line          int               `json:"line"`
	Batch         string            `json:"batch"`
	ID            string            `json:"id,omitempty"`
	Status        forebay.Status    `json:"status"`
	Result        json.RawMessage   `json:"result"`
	Error         *forebay.JobError `json:"error"`
	Usage         *forebay.Usage    `json:"usage,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// resultsFile appends whole lines to the output file.
type resultsFile struct {
	*os.File
	batch     string
	mu        sync.Mutex
	done      map[int]bool
	succeeded int
}

// openResults opens a results file and reads its lines. It removes an incomplete last line, which
// a crash can leave.
func openResults(name, batch string, lines map[int]bool) (*resultsFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // answers of models are private
	if err != nil {
		return nil, command.Usagef("cannot write %s: %s", name, command.Cause(err))
	}
	r := &resultsFile{File: f, batch: batch, done: map[int]bool{}}
	if err := r.load(lines); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *resultsFile) load(lines map[int]bool) error {
	foreign := func(number int, what string) error {
		return command.ExitError(command.ExitConflict, fmt.Sprintf("%s:%d: %s; choose another output file, or remove this one",
			filepath.Base(r.Name()), number, what))
	}
	var end int64 // of the last whole line
	in := bufio.NewReaderSize(r.File, 64<<10)
	for number := 1; ; number++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) && beginsResult(line) {
			break
		}
		if errors.Is(err, bufio.ErrTooLong) || errors.Is(err, io.EOF) {
			return foreign(number, "is no result of a batch")
		}
		if err != nil {
			return command.Usagef("cannot read %s: %s", r.Name(), command.Cause(err))
		}
		end += int64(len(line))
		var result batchResult
		switch err := json.Unmarshal(line, &result); {
		case err != nil || result.Line < 1 || result.Status == "":
			return foreign(number, "is no result of a batch")
		case result.Batch != r.batch || !lines[result.Line]:
			return foreign(number, "is the result of another batch file")
		case r.done[result.Line]:
			return foreign(number, "is a second result of the same line")
		}
		r.note(result)
	}
	if err := r.Truncate(end); err != nil {
		return command.Failf("cannot write %s: %s", r.Name(), command.Cause(err))
	}
	_, err := r.Seek(end, io.SeekStart)
	return err
}

// beginsResult reports whether an incomplete line, or an empty one, can be what a crash has left
// of a result. Any other text is of somebody else's file, which must not be cut.
func beginsResult(line []byte) bool {
	const first = `{"line":`
	line = bytes.TrimRight(line, "\x00") // a loss of power may leave such
	return bytes.HasPrefix(line, []byte(first)) || strings.HasPrefix(first, string(line))
}

// readLine reads a line with its line feed. It returns io.EOF for a line without one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLineBytes:
			return nil, bufio.ErrTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (r *resultsFile) note(result batchResult) {
	r.done[result.Line] = true
	if result.Status == forebay.StatusSucceeded {
		r.succeeded++
	}
}

func (r *resultsFile) doneLines() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.done)
}

// append writes one result in one line.
func (r *resultsFile) append(result batchResult) error {
	result.Batch = r.batch
	var b bytes.Buffer
	// WriteJSON also puts the result on one line.
	if err := command.WriteJSON(&b, result, ""); err != nil {
		return fmt.Errorf("write result of line %d: %w", result.Line, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[result.Line] {
		return nil
	}
	if _, err := r.Write(b.Bytes()); err != nil {
		return command.Failf("cannot write %s: %s", filepath.Base(r.Name()), command.Cause(err))
	}
	r.note(result)
	return nil
}
