//go:build unix

package pgtest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	direct := Database(t)
	p := NewProxy(t, direct)
	address := p.URL(direct)
	conn := connect(t, address)
	exec1(t, conn, "CREATE TABLE x (n bigint)")

	p.Stall()
	inserted := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "INSERT INTO x VALUES (1)")
		inserted <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := execute(ctx, address, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a new connection over a stalled network: %v", err)
	}
	select {
	case err := <-inserted:
		t.Errorf("a statement over a stalled network has ended: %v", err)
	default:
	}
	p.Heal()
	if err := <-inserted; err != nil {
		t.Errorf("after the network has healed: %s", err)
	}
	var n int
	if err := connect(t, direct).QueryRow(t.Context(), "SELECT count(*) FROM x").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows arrived: %v", n, err)
	}

	p.Cut()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a cut connection still works")
	}
	if err := execute(t.Context(), address, "SELECT 1"); err == nil {
		t.Error("a connection was made through a cut")
	}
	p.Heal()
	if err := execute(t.Context(), address, "SELECT 1"); err != nil {
		t.Errorf("after the cut: %s", err)
	}
}

// A cut also drops the bytes that a stall held back.
func TestProxyCutWhileStalled(t *testing.T) {
	t.Parallel()
	direct := Database(t)
	p := NewProxy(t, direct)
	conn := connect(t, p.URL(direct))
	p.Stall()
	ended := make(chan error, 1)
	go func() { ended <- conn.Ping(context.WithoutCancel(t.Context())) }()
	p.Cut()
	if err := <-ended; err == nil {
		t.Error("the connection survived the cut")
	}
}

// The pieces of a long message are under way at the same time. One after the other they would take
// more than two minutes here.
func TestProxyDelaysALongMessageOnce(t *testing.T) {
	t.Parallel()
	const size, far = 8 << 20, time.Second / 2
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	answered := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err == nil {
			defer conn.Close()
			if _, err = io.CopyN(io.Discard, conn, size); err == nil {
				_, err = conn.Write([]byte{1})
			}
		}
		answered <- err
	}()
	p := NewProxy(t, "postgres://"+server.Addr().String())
	p.Delay(far)
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := time.Now()
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(before); took < far || took > time.Minute {
		t.Errorf("a round trip of %v took %v", far, took)
	}
	if trips := p.RoundTrips(); trips != 1 {
		t.Errorf("%d round trips", trips)
	}
}
