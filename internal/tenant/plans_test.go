package tenant_test

import (
	"testing"

	"github.com/forebayhq/forebay/internal/tenant"
)

func TestPlansOnSQLite(t *testing.T) { fixture.PlansOnSQLite(t, nil, tenant.SQLTenantNumbered) }

func TestPlansOnPostgres(t *testing.T) { fixture.PlansOnPostgres(t, tenant.SQLTenantNumbered) }
