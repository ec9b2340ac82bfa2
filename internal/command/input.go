package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// Content is a text that a command line gives in a flag or as a file: an input, a body, a
// session's state.
type Content struct {
	File string // name of the file; "-" is standard input

	what               string // for messages
	textFlag, fileFlag string
	text               string
}

// Add adds the two flags. what names the content in messages, and textHelp is the help of the
// first flag.
func (f *Content) Add(flags *pflag.FlagSet, what, textFlag, fileFlag, textHelp string) {
	f.what, f.textFlag, f.fileFlag = what, textFlag, fileFlag
	flags.StringVar(&f.text, textFlag, "", textHelp)
	flags.StringVar(&f.File, fileFlag, "", "file with the "+what+"; - is standard input")
}

// Read returns the content, and whether any was given. It takes at most limit bytes.
func (f *Content) Read(c *Call, limit int64) (data []byte, given bool, err error) {
	switch hasText := c.Flags.Changed(f.textFlag); {
	case hasText && f.File != "":
		return nil, false, Usagef("give the %s once: by --%s or --%s", f.what, f.textFlag, f.fileFlag)
	case hasText:
		return []byte(f.text), true, nil
	case f.File == "":
		return nil, false, nil
	}
	data, err = c.ReadFile(c.Ctx, f.File, limit)
	return data, err == nil, err
}

// ReadFile reads a file of at most limit bytes, or standard input for "-".
func (a *App) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	if name == "-" {
		if isTerminal(a.In) {
			fmt.Fprintln(a.Err, "reading standard input; end with Ctrl-D")
		}
		return read(ctx, a.In, "standard input", limit)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, Usagef("cannot read %s: %s", name, Cause(err))
	}
	defer f.Close()
	return read(ctx, f, name, limit)
}

// read reads all there is, or ends with the context. Nothing wakes a read from a terminal or a
// pipe, so an interrupted read stays behind until the process ends.
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
		return nil, Usagef("cannot read %s: %s", name, Cause(err))
	case int64(len(data)) > limit:
		return nil, Usagef("%s has more than %d bytes", name, limit)
	}
	return data, nil
}
