package connections

import (
	"io"
	"net"
	"testing"
	"time"
)

// Where there are no keys, connections that send nothing make room for new ones.
func TestBoundedListenerClosesTheOldest(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(plain, 8) // two of them for one address
	defer l.Close()
	connect := func() (client net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { accepted.Close() })
		return client
	}
	oldest := connect()
	connect()
	connect()
	if err := oldest.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := oldest.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest connection: %v", err)
	}
}
