package server

import "testing"

// Descriptors are left for the database, calls and files.
func TestConnections(t *testing.T) {
	descriptors := int(min(fileDescriptors(), 1<<30))
	if got := (Limits{}).connections(); got > maxConnections || descriptors > 0 && got > max(8, descriptors/3) || got < 8 {
		t.Errorf("%d connections by default, with %d descriptors", got, descriptors)
	}
	if got := (Limits{Connections: 7}).connections(); got != 7 {
		t.Errorf("%d connections, 7 are configured", got)
	}
}
