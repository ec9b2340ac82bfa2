//go:build unix

package crash_test

import (
	"os"
	"testing"

	"github.com/forebayhq/forebay/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
