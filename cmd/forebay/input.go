package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// maxInputBytes is the most that a server can be configured to take.
const maxInputBytes = 100 << 20

// content is what a command line gives as a text or as a file: an input, a body, a session's
// state.
type content struct {
	what               string
	textFlag, fileFlag string
	text, file         string
}

// add adds the two flags. textHelp says what the first one takes.
func (f *content) add(flags *pflag.FlagSet, what, textFlag, fileFlag, textHelp string) {
	f.what, f.textFlag, f.fileFlag = what, textFlag, fileFlag
	flags.StringVar(&f.text, textFlag, "", textHelp)
	flags.StringVar(&f.file, fileFlag, "", "file with the "+what+"; - is standard input")
}

// read returns what was given, and whether anything was.
func (f *content) read(c *call, limit int64) (data []byte, given bool, err error) {
	switch hasText := c.flags.Changed(f.textFlag); {
	case hasText && f.file != "":
		return nil, false, usagef("give the %s once: by --%s or --%s", f.what, f.textFlag, f.fileFlag)
	case hasText:
		return []byte(f.text), true, nil
	case f.file == "":
		return nil, false, nil
	}
	data, err = c.readFile(c.ctx, f.file, limit)
	return data, err == nil, err
}

// readBody returns a message's body: text if it is UTF-8, else bytes. Both are nil if none was
// given.
func (f *content) readBody(c *call) (text *string, binary []byte, err error) {
	data, given, err := f.read(c, maxInputBytes)
	switch {
	case err != nil || !given:
		return nil, nil, err
	case !utf8.Valid(data):
		return nil, data, nil
	}
	body := string(data)
	return &body, nil, nil
}

// namesJSON reports whether a file holds JSON, going by its name.
func namesJSON(file string) bool { return strings.HasSuffix(file, ".json") }

// asInput makes a job's input: JSON as it is, or text as a JSON string.
func asInput(data []byte, isJSON bool) (json.RawMessage, error) {
	if isJSON {
		if err := jsoncheck.Check("input", data); err != nil {
			return nil, err
		}
		return bytes.TrimSpace(data), nil
	}
	if !utf8.Valid(data) {
		return nil, usagef("the input is not valid UTF-8 text")
	}
	return json.Marshal(string(data))
}

// readFile reads a file, or standard input for "-".
func (a *app) readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	if name == "-" {
		if isTerminal(a.in) {
			fmt.Fprintln(a.err, "reading standard input; end with Ctrl-D")
		}
		return read(ctx, a.in, "standard input", limit)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("cannot read %s: %s", name, cause(err))
	}
	defer f.Close()
	return read(ctx, f, name, limit)
}

// read reads all there is, or ends with the context. Nothing wakes a read from a terminal or a
// pipe: then it is left to the end of the process.
func read(ctx context.Context, r io.Reader, name string, limit int64) ([]byte, error) {
	var data []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		data, err = io.ReadAll(io.LimitReader(r, limit+1))
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case err != nil:
		return nil, usagef("cannot read %s: %s", name, cause(err))
	case int64(len(data)) > limit:
		return nil, usagef("%s has more than %d bytes", name, limit)
	}
	return data, nil
}
