package server_test

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

func TestLimitsThatCannotBe(t *testing.T) {
	for field, o := range map[string]server.Options{
		"tenants.acme.concurrency": {Tenants: map[string]server.Tenant{"acme": {Concurrency: -1}}},
		"tenants.tiny.weight":      {Tenants: map[string]server.Tenant{"tiny": {Weight: 0.0001}}},
		"tenants.huge.concurrency": {Tenants: map[string]server.Tenant{"huge": {Concurrency: forebay.MaxTenantConcurrency + 1}}},
		"deployments[0]":           {Deployments: []server.Deployment{{Name: "a", Provider: server.ProviderSim, Concurrency: -1}}},
	} {
		if err := o.WithDefaults().Validate(); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
