//go:build unix

package postgres

import (
	"net"
	"syscall"
)

// writeNow writes what the socket's buffer takes now and returns how much that is. What it cannot
// write is left to Write, which waits and tells errors. It writes nothing by TLS.
func writeNow(conn net.Conn, out []byte) (n int) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), out) // it does not block: the network poller has the socket
		return true
	})
	return max(n, 0)
}
