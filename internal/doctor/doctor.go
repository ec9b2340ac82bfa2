// Package doctor checks whether a server could run on this machine.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

const (
	minFreeBytes = 1 << 30
	maxSync      = 100 * time.Millisecond
	maxSkew      = 5 * time.Second
)

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Untried says that nothing was found, good or bad, because the check needs consent.
	Untried bool `json:"untried,omitempty"`
	code    int  // exit code if it is not OK
}

// Doctor checks a configuration and what it needs.
type Doctor struct {
	*command.App
	Call     bool // also call each deployment
	findings []Finding
}

func (d *Doctor) found(name string, ok bool, code int, format string, args ...any) {
	d.findings = append(d.findings, Finding{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...), code: code})
}

// untried says whether the latest check was made.
func (d *Doctor) untried(is bool) { d.findings[len(d.findings)-1].Untried = is }

// Examine makes all checks. load reads the configuration.
func (d *Doctor) Examine(ctx context.Context, load func() (config.Loaded, error)) {
	d.clock()
	loaded, err := load()
	if err != nil {
		for _, line := range command.Lines(ctx, err) {
			d.found("configuration", false, command.ExitConfiguration, "%s", line)
		}
		return
	}
	d.found("configuration", true, 0, "valid")
	o := loaded.Options
	d.deployments(ctx, o, loaded.Notes)
	checks, running := server.CheckDatabase(ctx, o.Database)
	for _, check := range checks {
		d.found(check.Name, check.OK, command.ExitStorage, "%s", check.Detail)
	}
	if file, ok := strings.CutPrefix(o.Database, "sqlite:"); ok {
		d.disk(filepath.Dir(strings.TrimPrefix(file, "//")))
	}
	d.blobs(ctx, o)
	for _, check := range server.CheckAzureServiceBus(ctx, o) {
		d.found(check.Name, check.OK, command.ExitUnavailable, "%s", check.Detail)
	}
	d.certificate(o.TLS)
	d.port(ctx, o, running)
	d.grpc(o, running)
}

// clock finds a clock that was never set. It cannot find one that is slightly wrong.
func (d *Doctor) clock() {
	now := d.Now()
	ok := now.Year() >= 2025 && now.Year() < 2100
	d.found("clock", ok, command.ExitFailed, "%s", now.In(d.Zone).Format(time.RFC3339))
}

func (d *Doctor) deployments(ctx context.Context, o server.Options, notes []string) {
	simulated := 0
	for _, deployment := range o.Deployments {
		if deployment.Provider == server.ProviderSim {
			simulated++
		}
	}
	detail := fmt.Sprintf("%d configured", len(o.Deployments))
	if simulated == len(o.Deployments) {
		detail += ", all simulated: no real model is called"
	} else if !d.Call {
		detail += "; --call tries each one"
	}
	d.found("deployments", true, 0, "%s", detail)
	d.untried(!d.Call && simulated < len(o.Deployments))
	for _, deployment := range o.Deployments {
		ownEndpoint := deployment.Endpoint != "" && deployment.Provider == server.ProviderOpenAI
		if deployment.Provider == server.ProviderSim || deployment.APIKey != "" || deployment.EntraID || ownEndpoint {
			continue
		}
		d.found("deployment "+deployment.Name, false, command.ExitConfiguration, "has no api_key")
	}
	try, verb := server.AskDeployments, "lists its models to this key"
	if d.Call {
		try, verb = server.CallDeployments, "answered"
	}
	for _, c := range try(ctx, o) {
		code := command.ExitUnavailable
		if c.Denied {
			code = command.ExitConfiguration
		}
		answer := verb + " in " + c.Took.Round(time.Millisecond).String()
		if c.Untried {
			answer = "answers, but says nothing of the key"
		}
		if c.Unlisted != "" {
			answer += fmt.Sprintf(", but %.60q is not among them; --call tells whether it is there", c.Unlisted)
		}
		d.found("deployment "+c.Deployment, c.Err == "", code, "%s", cmp.Or(c.Err, answer))
		d.untried(c.Untried)
	}
	for _, note := range notes {
		d.found("note", true, 0, "%s", note)
	}
}

// disk measures the free space and the time of an fsync, which every acknowledged job waits for.
func (d *Doctor) disk(folder string) {
	if free, err := freeBytes(folder); err == nil {
		d.found("free space", free >= minFreeBytes, command.ExitStorage, "%.1f GiB", float64(free)/(1<<30))
	} else if !errors.Is(err, errors.ErrUnsupported) {
		d.found("free space", false, command.ExitStorage, "cannot be seen: %s", command.Cause(err))
	}
	took, err := syncTime(folder)
	if err != nil {
		d.found("fsync", false, command.ExitStorage, "the database's folder cannot be written to: %s", command.Cause(err))
		return
	}
	d.found("fsync", took < maxSync, command.ExitStorage, "takes %s", took.Round(10*time.Microsecond))
}

// syncTime returns the mean time of some small durable writes.
func syncTime(folder string) (took time.Duration, err error) {
	f, err := os.CreateTemp(folder, ".forebay-doctor-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	const writes = 10
	block := make([]byte, 4096)
	start := time.Now()
	for range writes {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / writes, nil
}

func (d *Doctor) blobs(ctx context.Context, o server.Options) {
	if o.Blob == "" {
		where := "a folder beside the database"
		if !strings.HasPrefix(o.Database, "sqlite:") {
			where = "the folder forebay.blobs where a server is started; configure blob, the same for all processes"
		}
		d.found("blob storage", true, 0, "%s", where)
		return
	}
	store, err := blob.Open(ctx, o.Blob)
	if err == nil {
		defer store.Close()
		err = store.Check(ctx)
	}
	if err != nil {
		d.found("blob storage", false, command.ExitStorage, "%s", err)
		return
	}
	d.found("blob storage", true, 0, "reachable")
}

// tryListen returns the error that a server would get when listening on an address.
func tryListen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		err = listener.Close()
	}
	return err
}

// grpc tries to listen on the address of the Durable Task protocol.
func (d *Doctor) grpc(o server.Options, running bool) {
	address := o.Orchestrations.GRPC.Address
	if address == "" {
		d.found("gRPC", true, 0, "not served: orchestrations.grpc.address is not set")
		return
	}
	switch err := tryListen(address); {
	case err == nil && running:
		d.found("gRPC", false, command.ExitUnavailable,
			"%s is free, though a server is running: it was started with another configuration", address)
	case err == nil:
		d.found("gRPC", true, 0, "%s is free", address)
	case running:
		d.found("gRPC", true, 0, "%s is taken, as a server is running", address)
	default:
		d.found("gRPC", false, command.ExitUnavailable, "%s: %s", address, innermost(err))
	}
}

// dialable returns an address of this machine at which a server answers that listens there.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen
	}
	return net.JoinHostPort("localhost", port)
}

// apiKey tries the caller's key on the running server, or on the one that FOREBAY_URL names.
func (d *Doctor) apiKey(ctx context.Context, address string) {
	api, err := d.ClientOf(address)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err = api.Tasks(ctx)
	}
	switch forebay.CodeOf(err) {
	case forebay.CodeUnauthorized, forebay.CodeForbidden:
		d.found("API key", false, command.ExitConfiguration, "at %s: %s", api.BaseURL(), err)
	case "":
		d.found("API key", true, 0, "works at %s", api.BaseURL())
	}
}

// certificate reads what HTTPS is served with, as a start does.
func (d *Doctor) certificate(files server.TLS) {
	pair, err := files.Load()
	if err != nil {
		d.found("certificate", false, command.ExitConfiguration, "%s", err)
		return
	}
	if pair == nil {
		return
	}
	ends := pair.Leaf.NotAfter
	d.found("certificate", d.Now().Before(ends), command.ExitConfiguration, "ends at %s", ends.In(d.Zone).Format(time.RFC3339))
}

// port tries to listen on the server's address. A running server on this database should have that
// port. Then port compares its clock.
func (d *Doctor) port(ctx context.Context, o server.Options, running bool) {
	switch err := tryListen(o.Listen); {
	case err == nil:
		d.found("port", true, 0, "%s is free", o.Listen)
		return
	case !running:
		d.found("port", false, command.ExitUnavailable, "%s: %s", o.Listen, innermost(err))
		return
	}
	d.found("port", true, 0, "%s is taken, as a server is running", o.Listen)
	scheme := "http"
	if o.TLS.CertFile != "" {
		scheme = "https"
	}
	address := scheme + "://" + dialable(o.Listen)
	d.apiKey(ctx, address)
	if skew, err := serverSkew(ctx, address+"/healthz"); err == nil {
		if skew.Abs() < maxSkew {
			d.found("server clock", true, 0, "agrees")
		} else {
			d.found("server clock", false, command.ExitFailed, "differs by %s", skew.Abs().Round(time.Second))
		}
	}
}

func serverSkew(ctx context.Context, address string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	return time.Since(at), err
}

func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// Finish prints the findings. The exit code is that of the worst one.
func (d *Doctor) Finish() error {
	code := command.ExitOK
	for _, f := range d.findings {
		if !f.OK {
			code = max(code, f.code)
		}
	}
	err := command.PrintList(d.App, d.findings, func(f Finding) []command.Field {
		state := "ok"
		switch {
		case !f.OK:
			state = "WRONG"
		case f.Untried:
			state = "untried"
		}
		return []command.Field{{"CHECK", f.Name}, {"STATE", state}, {"DETAIL", f.Detail}}
	})
	if err != nil || code == command.ExitOK {
		return err
	}
	return command.ExitError(code)
}
