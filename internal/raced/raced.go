// Package raced keeps tests that the race detector learns nothing from out of its short run.
// The detector makes them several times slower.
package raced

import "testing"

// Skip skips the test in the short run under the race detector, which is what `make race` does.
// Without -short the detector watches the test too. The reason says why it would see nothing
// there.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if detector && testing.Short() {
		t.Skip("not in the short run under the race detector: " + reason)
	}
}

// Reasons that many tests share.
const (
	Processes  = "starts processes, and the detector watches only this one"
	Sequential = "does one operation after the other"
	Waiting    = "mostly waits"
	MuchData   = "spends its time on much data, not on what happens at once"
)
