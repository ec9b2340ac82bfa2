package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// maxInputBytes is the most a server can be configured to take.
const maxInputBytes = 100 << 20

// client returns the SDK for the server that flags or variables name. It gives up soon, because
// somebody waits; patient is for what has begun and should survive the server's restart.
func (a *app) client() (*client.Client, error) { return a.newClient(time.Second) }

func (a *app) patient() (*client.Client, error) { return a.newClient(time.Minute) }

func (a *app) newClient(retryTime time.Duration) (*client.Client, error) {
	o := client.Options{BaseURL: a.url, Key: forebay.Secret(a.key), RetryTime: retryTime}
	if o.BaseURL == "" {
		o.BaseURL = a.getenv("FOREBAY_URL")
	}
	if o.Key == "" {
		o.Key = forebay.Secret(a.getenv("FOREBAY_API_KEY"))
	}
	if file := cmp.Or(a.caCert, a.getenv("FOREBAY_CA_CERT")); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("cannot read the certificates in %s: %s", file, cause(err))
		}
		o.CACertificates = pem
	}
	c, err := client.New(o)
	if refused := (*forebay.Error)(nil); errors.As(err, &refused) && refused.Field == "ca_certificates" {
		return nil, usagef("the file of --ca-cert holds no certificate in PEM")
	}
	if err != nil {
		return nil, usagef("the server's address must be like %s", client.DefaultBaseURL)
	}
	return c, nil
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

// read reads all there is, or ends with the context. Nothing wakes a read from a terminal or a pipe:
// then it is left to the end of the process.
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

// namesJSON reports whether a file holds JSON, going by its name.
func namesJSON(file string) bool { return strings.HasSuffix(file, ".json") }

// cause is what is wrong with a file, without its path.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

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

// parseMetadata reads key=value pairs.
func parseMetadata(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	metadata := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--metadata must be key=value, not %q", pair)
		}
		metadata[name] = value
	}
	return metadata, nil
}

// parseTime reads an RFC 3339 time, or a duration from now: forwards, or back when past is set.
func (a *app) parseTime(flag, s string, past bool) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return &t, nil
	}
	d, err := parseDuration(s)
	if err != nil {
		return nil, usagef("--%s must be a duration such as 90d, 24h or 10m, or a time such as 2030-01-02T15:04:05Z, not %q", flag, s)
	}
	if past {
		d = -d
	}
	t := a.now().Add(d).UTC()
	return &t, nil
}

// oneFlag refuses a command line that has not exactly one of the flags.
func oneFlag(c *cobra.Command, names ...string) error {
	given := 0
	for _, name := range names {
		if c.Flags().Changed(name) {
			given++
		}
	}
	if given != 1 {
		return usagef("give one of --%s", strings.Join(names, ", --"))
	}
	return nil
}

// parseDuration is time.ParseDuration with days.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, isDays := strings.CutSuffix(s, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", s)
	}
	return d, err
}
