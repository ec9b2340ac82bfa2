//go:build !unix

package postgres

import "net"

// writeNow leaves all to Write.
func writeNow(net.Conn, []byte) int { return 0 }
