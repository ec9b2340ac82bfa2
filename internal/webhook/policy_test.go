package webhook

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestPermits(t *testing.T) {
	var public Policy
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "93.184.215.14": true, "2606:4700:4700::1111": true, "::ffff:8.8.8.8": true, "64:ff9b::808:808": true,
		"172.15.255.255": true, "172.32.0.0": true, "100.128.0.0": true, "168.63.129.17": true, "223.255.255.255": true,

		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "100.64.0.1": false, "100.100.100.200": false, "127.0.0.1": false,
		"127.255.255.255": false, "168.63.129.16": false, "169.254.169.254": false, "169.254.0.1": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.0.0.192": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.1.1": false,
		"198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false,
		"240.0.0.1": false, "255.255.255.255": false,

		"::": false, "::1": false, "::7f00:1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "fc00::1": false,
		"fd00:ec2::254": false, "fd20:ce::254": false, "ff02::1": false, "ff05::1": false, "2001:db8::1": false, "3fff::1": false, "2001::1": false,
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": false, "2002:7f00:1::": false, "2002:808:808::": false, "100::1": false, "5f00::1": false,
		"2606:4700:4700::1111%eth0": false,

		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:0:127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::808:808": false,
	} {
		if got := public.permits(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}

	inside := Policy{Allow: prefixes("10.1.0.0/16", "::1/128"), Deny: prefixes("10.1.2.0/24", "8.8.8.0/24")}
	for addr, want := range map[string]bool{
		"10.1.0.1": true, "::ffff:10.1.0.1": true, "64:ff9b::a01:1": true, "::1": true,
		"10.1.2.1": false, "10.2.0.1": false, "8.8.8.8": false, "::ffff:8.8.8.8": false, "64:ff9b::808:808": false, "127.0.0.1": false,
	} {
		if got := inside.permits(netip.MustParseAddr(addr)); got != want {
			t.Errorf("with an allow-list, %s: %t", addr, got)
		}
	}
}

// FuzzPermits: whatever form an address has, one that is permitted is a public host's, by the
// standard library's judgement too.
func FuzzPermits(f *testing.F) {
	for _, seed := range []string{"8.8.8.8", "127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::808:808", "2606:4700::1", "fe80::1"} {
		f.Add(netip.MustParseAddr(seed).AsSlice())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok || !new(Policy).permits(addr) {
			return
		}
		addr = addr.Unmap()
		if nat64.Contains(addr) {
			b := addr.As16()
			addr = netip.AddrFrom4([4]byte(b[12:]))
		}
		if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
			t.Errorf("%s is permitted", addr)
		}
	})
}

func TestCheckURL(t *testing.T) {
	names := &fakeDNS{answers: map[string][]string{
		"receiver.example.": {"93.184.215.14"}, "inside.example.": {"10.0.0.1"}, "mixed.example.": {"93.184.215.14", "127.0.0.1"},
		"six.example.": {"2606:4700:4700::1111"}, "local6.example.": {"93.184.215.14", "::1"}, "mapped.example.": {"::ffff:10.0.0.1"},
	}}
	p := Policy{Resolver: names.resolver()}
	for raw, want := range map[string]string{
		"https://receiver.example/hook?x=1": "", "https://receiver.example:8443": "", "https://six.example/": "", "https://8.8.8.8/": "",
		"HTTPS://receiver.example/": "", "https://[2606:4700:4700::1111]:443/": "",

		"http://receiver.example/": "https", "ftp://receiver.example/": "https", "receiver.example/hook": "https", "//receiver.example/": "https",
		"https:receiver.example": "no host", "https:///x": "no host", "https://:443/": "no host",
		"https://user:secret@receiver.example/": "password", "https://user@receiver.example/": "password",
		"https://receiver.example/#x": "fragment", "https://receiver.example:0/": "port", "https://receiver.example:70000/": "port",
		"https://receiver.example:x/": "not a URL", "https://receiver.example/%zz": "not a URL", "": "empty", "https://receiver.example/\n": "control",
		"https://receiver.example/" + strings.Repeat("x", forebay.MaxWebhookURLBytes): "longer",

		"https://inside.example/": "private", "https://mixed.example/": "private", "https://local6.example/": "private", "https://mapped.example/": "private",
		"https://127.0.0.1/": "private", "https://[::1]/": "private", "https://[::ffff:a00:1]/": "private", "https://169.254.169.254/latest": "private",
		"https://[fe80::1%25eth0]/": "private", "https://unknown.example/": "private", "https://2130706433/": "private", "https://0x7f.1/": "private",
	} {
		err := p.CheckURL(t.Context(), raw)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", raw, err)
			}
			continue
		}
		if err == nil || forebay.CodeOf(err) != forebay.CodeInvalidRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "10.0.0.1")) {
			t.Errorf("%q: the error says too much: %v", raw, err)
		}
	}
	inside, missing := p.CheckURL(t.Context(), "https://inside.example/"), p.CheckURL(t.Context(), "https://unknown.example/")
	if inside.Error() != missing.Error() {
		t.Errorf("a name inside is told from one that does not exist: %q, %q", inside, missing)
	}
	p.AllowHTTP = true
	if err := p.CheckURL(t.Context(), "http://receiver.example/"); err != nil {
		t.Errorf("plain http where it is allowed: %v", err)
	}
	if err := p.CheckURL(t.Context(), "http://inside.example/"); err == nil {
		t.Error("plain http made a private address good")
	}
}

// fakeDNS is a name server within the process. Each name may have other answers every time.
type fakeDNS struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   int
}

func (f *fakeDNS) set(name string, addrs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[name] = addrs
}

func (f *fakeDNS) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go f.serve(there)
		return here, nil
	}}
}

// serve answers the questions of one connection, which like DNS over TCP frames each message by
// its length.
func (f *fakeDNS) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := readFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := readFull(c, query); err != nil {
			return
		}
		answer := f.answer(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = c.Read(b[n:])
		n += more
	}
	return n, err
}

// answer makes the response to a query of one question (RFC 1035, section 4).
func (f *fakeDNS) answer(query []byte) []byte {
	const header, typeA, typeAAAA = 12, 1, 28
	name, end := "", header
	for query[end] != 0 {
		name += string(query[end+1:end+1+int(query[end])]) + "."
		end += 1 + int(query[end])
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	question := query[header : end+5]
	f.mu.Lock()
	addrs, known := f.answers[name]
	f.asked++
	f.mu.Unlock()

	var records []byte
	count := uint16(0)
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		if addr.Is4() != (kind == typeA) || kind != typeA && kind != typeAAAA {
			continue
		}
		records = append(records, 0xc0, header) // the name in the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // class IN, not to be kept
		records = binary.BigEndian.AppendUint16(records, uint16(len(addr.AsSlice())))
		records = append(records, addr.AsSlice()...)
		count++
	}
	flags := uint16(0x8180)
	if !known {
		flags |= 3 // no such name
	}
	b := append([]byte{}, query[:2]...)
	for _, field := range []uint16{flags, 1, count, 0, 0} {
		b = binary.BigEndian.AppendUint16(b, field)
	}
	return append(append(b, question...), records...)
}
