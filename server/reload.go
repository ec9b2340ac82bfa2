package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"reflect"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
)

// Reload applies changed options while the server runs: deployments, models, tasks, tenants,
// limits.tenant and the TLS files. Running calls keep the old options. Either all changes are
// applied or none. The error is the one that [New] would return for these options. Other changed
// options need a restart: Reload returns their keys and does not apply them.
func (s *Server) Reload(ctx context.Context, opts Options) (restart []string, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	wanted := opts.WithDefaults()
	if err := wanted.Validate(); err != nil {
		return nil, err
	}
	o := s.reloaded
	o.Deployments, o.Models, o.Tasks, o.Tenants, o.Limits.Tenant = wanted.Deployments, wanted.Models, wanted.Tasks, wanted.Tenants, wanted.Limits.Tenant
	if (o.TLS.CertFile == "") == (wanted.TLS.CertFile == "") {
		o.TLS = wanted.TLS
	}
	// Options that need a restart may name something that is gone.
	if err := o.Validate(); err != nil {
		return nil, err
	}
	models, known, err := o.models(s.telemetry, s.deployments.called.Load().models)
	if err != nil {
		return nil, err
	}
	s.addCalls(o, models, known)
	certificate, err := o.TLS.Load()
	if err != nil {
		return nil, err
	}
	calls := o.documentCalls(known)
	for _, task := range s.documents.Tasks(calls) {
		known[task.Name] = task
	}
	apply, err := s.jobs.Prepare(ctx, jobs.Settings{Tasks: known, Deployments: s.deployments.admission, Weights: o.weights()})
	if err != nil {
		return nil, err
	}
	if err := s.configureTenants(ctx, o.Tenants); err != nil {
		return nil, err
	}
	s.certificate.Store(certificate)
	s.limits.SetStandard(o.Limits.Tenant)
	s.store.Admission.Identify(o.identities())
	s.deployments.called.Store(&called{models, known})
	s.documents.SetCalls(calls)
	apply()
	restart = differences(o, wanted)
	s.reloaded = o
	s.deployments.retryDenied(ctx)
	if err := s.store.Admission.ReconsiderCalls(ctx); err != nil {
		s.log.Warn("waiting jobs may notice the new configuration only later", slog.Any("error", err))
	}
	return restart, nil
}

// differences returns the keys of options that differ.
func differences(a, b Options) (keys []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		key := x.Type().Field(i).Tag.Get("koanf")
		if key != "-" && !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Load reads the certificate and its key. It returns nil if none is configured. Its
// error is like one of [Options.Validate], which does not read these files.
func (t TLS) Load() (*tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	public, err := os.ReadFile(t.CertFile)
	if err != nil {
		return nil, forebay.Invalid("tls.cert_file", "cannot be read: %s", rootCause(err))
	}
	private, err := os.ReadFile(t.KeyFile)
	if err != nil {
		return nil, forebay.Invalid("tls.key_file", "cannot be read: %s", rootCause(err))
	}
	certificate, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, forebay.Invalid("tls", "the certificate and its key cannot be used: %s", rootCause(err))
	}
	return &certificate, nil
}

// certificateNow returns the newest certificate for a new connection. It is for tls.Config.
func (s *Server) certificateNow(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.certificate.Load(), nil
}
