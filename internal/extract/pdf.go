package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/forebayhq/forebay"
)

// A PDF is read by a process of its own, which runs this program again. A broken or hostile file
// can make the parser loop or use all memory. Only that process then ends.

// Limits on one PDF.
const (
	MaxPages    = 5000
	pdfTimeout  = 3 * time.Minute // also where processors are short
	pdfMemory   = 2 << 30         // bytes of address space
	maxAnswer   = 2*MaxTextBytes + 1<<20
	maxPDFBytes = 256 << 20
)

// processorSeconds is how much processor time a PDF of that size may take. Small files are read
// fast unless they were made to take long.
func processorSeconds(size int) uint64 {
	const least, bytesPerSecond, most = 2, 64 << 10, 60
	return uint64(min(least+size/bytesPerSecond, most))
}

// pdfVariable makes this program such a process. Its value is the allowed processor time in
// seconds.
const pdfVariable = "FOREBAY_READ_PDF"

func init() {
	if seconds := os.Getenv(pdfVariable); seconds != "" {
		os.Exit(servePDF(os.Stdin, os.Stdout, seconds)) //nolint:forbidigo // it is a main function of its own
	}
}

// pdfAnswer is what that process writes to its standard output.
type pdfAnswer struct {
	Text
	Code    forebay.Code `json:",omitempty"` // of the error; "": none
	Message string       `json:",omitempty"`
}

func readPDF(ctx context.Context, data []byte) (Text, error) {
	return readPDFWithin(ctx, data, processorSeconds(len(data)))
}

func readPDFWithin(ctx context.Context, data []byte, seconds uint64) (Text, error) {
	if len(data) > maxPDFBytes {
		return Text{}, forebay.Errorf(forebay.CodeDocumentTooLarge, "a PDF may have at most %d bytes", maxPDFBytes)
	}
	program, err := os.Executable()
	if err != nil {
		return Text{}, unreadable(err)
	}
	const self = "/proc/self/exe" // also when the file was replaced meanwhile
	if _, err := os.Stat(self); err == nil {
		program = self
	}
	within, cancel := context.WithTimeout(ctx, wallTime(seconds))
	defer cancel()
	var answer limitedBuffer
	cmd := exec.CommandContext(within, program)
	cmd.Env = []string{fmt.Sprintf("%s=%d", pdfVariable, seconds), "GOMAXPROCS=1"}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &answer
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Text{}, ctx.Err()
	case within.Err() != nil:
		return Text{}, broken("the PDF cannot be read within %s", wallTime(seconds))
	case answer.full:
		return Text{}, errLong
	case errors.As(err, &ended) && ended.UserTime()+ended.SystemTime() >= time.Duration(seconds)*time.Second:
		return Text{}, broken("the PDF cannot be read within %d s of processor time", seconds)
	case errors.As(err, &ended):
		return Text{}, broken("the PDF is damaged, or needs more memory than there is for one")
	case err != nil:
		return Text{}, unreadable(err)
	}
	var said pdfAnswer
	if err := json.Unmarshal(answer.Bytes(), &said); err != nil {
		return Text{}, unreadable(err)
	}
	if said.Code != "" {
		return Text{}, forebay.Errorf(said.Code, "%s", said.Message)
	}
	return said.Text, nil
}

func unreadable(err error) error {
	return forebay.Errorf(forebay.CodeUnavailable, "the process that reads PDF cannot be started").Caused(err)
}

// limitedBuffer keeps what is written to it up to maxAnswer bytes.
type limitedBuffer struct {
	bytes.Buffer
	full bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.full = b.full || b.Len()+len(p) > maxAnswer; b.full {
		return 0, errLong
	}
	return b.Buffer.Write(p)
}
