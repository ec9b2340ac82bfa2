package command

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// Client returns a client of the server that flags or variables name. It retries for a second
// only, because a user waits.
func (a *App) Client() (*client.Client, error) { return a.newClient("", time.Second) }

// ClientOf is Client for the server at an address, unless flags or variables name another one.
func (a *App) ClientOf(address string) (*client.Client, error) {
	return a.newClient(address, time.Second)
}

// Patient returns a client for work that is under way. It retries for a minute, while the server
// may restart.
func (a *App) Patient() (*client.Client, error) { return a.newClient("", time.Minute) }

// newClient returns a client of the server at an address, which flags or variables override.
func (a *App) newClient(address string, retryTime time.Duration) (*client.Client, error) {
	o := client.Options{
		BaseURL:   cmp.Or(a.url, a.Getenv("FOREBAY_URL"), address),
		Key:       forebay.Secret(cmp.Or(a.key, a.Getenv("FOREBAY_API_KEY"))),
		RetryTime: retryTime,
	}
	if file := cmp.Or(a.caCert, a.Getenv("FOREBAY_CA_CERT")); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, Usagef("cannot read the certificates in %s: %s", file, Cause(err))
		}
		o.CACertificates = pem
	}
	c, err := client.New(o)
	if refused := (*forebay.Error)(nil); errors.As(err, &refused) && refused.Field == "ca_certificates" {
		return nil, Usagef("the file of --ca-cert holds no certificate in PEM")
	}
	if err != nil {
		return nil, Usagef("the server's address must be like %s", client.DefaultBaseURL)
	}
	if a.tenant != "" {
		c = c.ForTenant(a.tenant)
	}
	return c, nil
}

// Interrupted adds advice to the error of an interrupted command. Other errors stay as they are.
func Interrupted(ctx context.Context, err error, advice string) error {
	if err != nil && ctx.Err() != nil {
		return ExitError(ExitInterrupted, "interrupted; "+advice)
	}
	return err
}

// StillThere is for an error while a command waits for a thing. It adds that nothing is lost, and
// which command shows the thing.
func (a *App) StillThere(ctx context.Context, err error, thing, command string) error {
	if ctx.Err() != nil {
		return Interrupted(ctx, err, thing+" goes on: "+command)
	}
	return a.Advise(ctx, err, thing+" is on disk: "+command)
}
