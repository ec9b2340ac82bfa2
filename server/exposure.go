package server

import (
	"context"
	"log/slog"
	"net"
)

// warnExposed warns about addresses that other machines can reach without protection. A proxy in
// front may protect them, so nothing is refused.
func warnExposed(ctx context.Context, s *Server) {
	for _, at := range []struct {
		what string
		addr net.Addr
	}{{"http", s.addr}, {"grpc", s.grpcAddr}, {"service-bus", s.busAddr}} {
		if at.addr == nil || onLoopback(at.addr) {
			continue
		}
		where := []any{slog.String("protocol", at.what), slog.String("listen", at.addr.String())}
		if s.certificate.Load() == nil {
			s.log.Warn("other machines reach this address without TLS: API keys and prompts can be read on the way", where...)
		}
		if _, open, err := s.keys.Authenticate(ctx, ""); err == nil && open {
			s.log.Warn("there is no API key yet: requests of other machines are refused; make a key with forebay keys create", where...)
		}
	}
	if s.metricsAddr != nil && !onLoopback(s.metricsAddr) {
		s.log.Warn("metrics need no key: every machine that reaches this address can read them", slog.String("listen", s.metricsAddr.String()))
	}
}

// onLoopback reports whether only this machine can reach the address.
func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
