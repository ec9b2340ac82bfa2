//go:build unix

// Package admission_test tries when a whole server lets jobs go: quotas, limits of concurrency and
// of tenants, and deployments that are out or deny calls. Some tests have several processes.
package admission_test

import (
	"os"
	"testing"

	"github.com/forebayhq/forebay/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
