package connections

import (
	"net"
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

// A tenant leaves connections for others. Beyond its share it loses idle ones, and else is
// refused.
func TestTenantLeavesConnections(t *testing.T) {
	all := New(16)
	accept := func() *Connection {
		t.Helper()
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		c := all.admit(near)
		if c == nil {
			t.Fatal("there is no place")
		}
		return c
	}
	var greedy []*Connection
	for range 12 {
		c := accept()
		if err := c.BelongsTo("greedy"); err != nil {
			t.Fatalf("connection %d: %v", len(greedy)+1, err)
		}
		greedy = append(greedy, c)
	}
	refused := accept()
	if err := refused.BelongsTo("greedy"); forebay.CodeOf(err) != forebay.CodeTooManyRequests {
		t.Errorf("connection 13: %v", err)
	}
	refused.changed(http.StateIdle)
	if !refused.closed {
		t.Error("the connection that was refused stays open")
	}
	greedy[3].changed(http.StateIdle)
	if err := accept().BelongsTo("greedy"); err != nil || !greedy[3].closed {
		t.Errorf("in the place of an idle one: %v", err)
	}
	if err := accept().BelongsTo("other"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	// Strangers take the rest and no more.
	for range 20 {
		accept()
	}
	if all.open != 16 || all.anonymous.Len() != 3 || all.tenants["greedy"] != 12 {
		t.Errorf("%d open, %d anonymous, %v", all.open, all.anonymous.Len(), all.tenants)
	}
	for _, c := range greedy {
		c.Close()
		c.Close()
	}
	if all.open != 5 || all.tenants["greedy"] != 1 { // the one in the place of the idle one stays
		t.Errorf("%d open, %v", all.open, all.tenants)
	}
}
