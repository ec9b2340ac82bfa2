package quota_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected less often: simulations keep little and throw away much.
func TestMain(m *testing.M) {
	debug.SetGCPercent(4000)
	os.Exit(m.Run())
}
