package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// client returns the SDK for the server that flags or variables name. It gives up soon, because
// somebody waits.
func (a *app) client() (*client.Client, error) { return a.newClient(time.Second) }

// patient returns a client for what has begun. It waits while the server restarts.
func (a *app) patient() (*client.Client, error) { return a.newClient(time.Minute) }

func (a *app) newClient(retryTime time.Duration) (*client.Client, error) {
	o := client.Options{
		BaseURL:   cmp.Or(a.url, a.getenv("FOREBAY_URL")),
		Key:       forebay.Secret(cmp.Or(a.key, a.getenv("FOREBAY_API_KEY"))),
		RetryTime: retryTime,
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

// interrupted says what an interrupted user may want to know. Other errors stay as they are.
func interrupted(ctx context.Context, err error, advice string) error {
	if err != nil && ctx.Err() != nil {
		return &failure{exitInterrupted, "interrupted; " + advice}
	}
	return err
}

// stillThere adds to an error of waiting that nothing is lost, and which command shows the thing.
func (a *app) stillThere(ctx context.Context, err error, thing, command string) error {
	if ctx.Err() != nil {
		return interrupted(ctx, err, thing+" goes on: "+command)
	}
	return a.advise(ctx, err, thing+" is on disk: "+command)
}
