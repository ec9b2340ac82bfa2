package webhook

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// local lets webhooks go to this machine.
func local() Policy {
	return Policy{AllowHTTP: true, Allow: prefixes("127.0.0.0/8", "::1/128")}
}

func newSender(t *testing.T, opts SenderOptions) *Sender {
	t.Helper()
	s := NewSender(opts)
	t.Cleanup(s.Close)
	return s
}

func receiver(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server
}

func endpointAt(url string) Endpoint {
	return Endpoint{ID: 1, Tenant: "acme", Name: "hook", URL: url, Secrets: []SigningSecret{{Secret: vectorSecret}}}
}

func TestSend(t *testing.T) {
	var header http.Header
	var body, uri, method string
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		header, body, uri, method = r.Header, string(b), r.RequestURI, r.Method
		w.WriteHeader(http.StatusAccepted)
	})
	s := newSender(t, SenderOptions{Policy: local()})
	before := time.Now().Unix()
	a := s.Send(t.Context(), endpointAt(server.URL+"/hook?a=b"), Message{ID: "evt_1", Body: []byte(`{"type":"job.succeeded"}`)})
	if a.Failure != "" || a.Status != http.StatusAccepted || a.Err != nil || a.Duration <= 0 {
		t.Fatalf("got %+v", a)
	}
	if method != http.MethodPost || uri != "/hook?a=b" || body != `{"type":"job.succeeded"}` {
		t.Errorf("got %s %s %s", method, uri, body)
	}
	if !verify(vectorSecret, header, body) || header.Get("webhook-id") != "evt_1" || header.Get("Content-Type") != "application/json" ||
		header.Get("User-Agent") != "Forebay-Webhooks" || header.Get("Cookie") != "" || header.Get("Authorization") != "" {
		t.Errorf("got %v", header)
	}
	var at int64
	if _, err := fmt.Sscan(header.Get("webhook-timestamp"), &at); err != nil || at < before || at > time.Now().Unix() {
		t.Errorf("timestamp %d (%v)", at, err)
	}
	// Another try has another time and the same id.
	s.Send(t.Context(), endpointAt(server.URL), Message{ID: "evt_1", ContentType: "text/plain", Body: []byte("x")})
	if header.Get("webhook-id") != "evt_1" || header.Get("Content-Type") != "text/plain" || !verify(vectorSecret, header, "x") {
		t.Errorf("got %v", header)
	}
}

func TestSendFailures(t *testing.T) {
	gone := receiver(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	s := newSender(t, SenderOptions{Policy: local()})
	for status, after := range map[int]string{500: "", 404: "", 410: "", 304: "", 429: "120", 503: "Wed, 21 Oct 2099 07:28:00 GMT"} {
		server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(status)
		})
		a := s.Send(t.Context(), endpointAt(server.URL), Message{ID: "e"})
		if a.Failure != FailedStatus || a.Status != status || (a.RetryAfter > 0) != (after != "") || after == "120" && a.RetryAfter != 2*time.Minute {
			t.Errorf("%d: got %+v", status, a)
		}
	}
	secured := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	t.Cleanup(secured.Close)
	broken := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Write([]byte("no HTTP\r\n\r\n"))
			c.Close()
		}
	})
	for url, want := range map[string]Failure{
		gone.URL: FailedConnection, broken.URL: FailedConnection, secured.URL: FailedTLS, "ftp://x/": FailedConfig,
		"https" + strings.TrimPrefix(broken.URL, "http"): FailedTLS, "http://10.255.255.1:9/": FailedAddress,
	} {
		a := s.Send(t.Context(), endpointAt(url), Message{ID: "e"})
		if a.Failure != want || a.Status != 0 || a.Err == nil {
			t.Errorf("%s: got %+v", url, a)
		}
		if strings.ContainsAny(a.String(), "0123456789:/") {
			t.Errorf("%s: says too much: %s", url, a)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(secured.Certificate())
	trusting := newSender(t, SenderOptions{Policy: local(), RootCAs: roots})
	if a := trusting.Send(t.Context(), endpointAt(secured.URL), Message{ID: "e"}); a.Failure != "" {
		t.Errorf("with its authority trusted: %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := s.Send(ctx, endpointAt(secured.URL), Message{ID: "e"}); a.Failure != FailedStopped {
		t.Errorf("stopped: %+v", a)
	}
	none := endpointAt(secured.URL)
	none.Secrets = nil
	if a := s.Send(t.Context(), none, Message{ID: "e"}); a.Failure != FailedConfig {
		t.Errorf("without a secret: %+v", a)
	}
}

// A redirect is an answer like any other: nothing is sent to where it points.
func TestNoRedirect(t *testing.T) {
	var reached atomic.Bool
	target := receiver(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	a := newSender(t, SenderOptions{Policy: local()}).Send(t.Context(), endpointAt(server.URL), Message{ID: "e", Body: []byte("x")})
	if a.Status != http.StatusTemporaryRedirect || a.Failure != FailedStatus || reached.Load() {
		t.Errorf("got %+v, reached the target: %t", a, reached.Load())
	}
}

// A proxy in the environment would be asked to reach what the policy refuses.
func TestNoProxy(t *testing.T) {
	proxy := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("asked the proxy") })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	names := &fakeDNS{answers: map[string][]string{"receiver.example.": {"203.0.113.1"}}}
	p := local()
	p.Resolver = names.resolver()
	s := newSender(t, SenderOptions{Policy: p})
	if s.transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy is set")
	}
	if a := s.Send(t.Context(), endpointAt("http://receiver.example/"), Message{ID: "e"}); a.Failure != FailedAddress {
		t.Errorf("got %+v", a)
	}
}

// A name that was good when the webhook was set is checked again on each connection.
func TestRebinding(t *testing.T) {
	var hits atomic.Int32
	server := receiver(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	names := &fakeDNS{answers: map[string][]string{"receiver.example.": {"93.184.215.14"}}}
	p := Policy{AllowHTTP: true, Resolver: names.resolver()}
	s := newSender(t, SenderOptions{Policy: p})
	url := "http://receiver.example:" + port + "/"
	if err := s.Policy().CheckURL(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, inside := range [][]string{{"127.0.0.1"}, {"::1"}, {"::ffff:127.0.0.1"}, {"127.0.0.1", "::1"}} {
		names.set("receiver.example.", inside...)
		a := s.Send(t.Context(), endpointAt(url), Message{ID: "e"})
		if a.Failure != FailedAddress || hits.Load() != 0 {
			t.Errorf("%v: got %+v, and %d requests arrived", inside, a, hits.Load())
		}
	}
	// The same name, server and address arrive once the operator allows them: the guard was what
	// stopped it.
	p.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	names.set("receiver.example.", "127.0.0.1")
	if a := newSender(t, SenderOptions{Policy: p}).Send(t.Context(), endpointAt(url), Message{ID: "e"}); a.Failure != "" || hits.Load() != 1 {
		t.Errorf("allowed: got %+v, and %d requests arrived", a, hits.Load())
	}
	names.set("receiver.example.")
	missing := s.Send(t.Context(), endpointAt(url), Message{ID: "e"})
	names.set("receiver.example.", "10.0.0.1")
	inside := s.Send(t.Context(), endpointAt(url), Message{ID: "e"})
	if missing.Failure != FailedAddress || inside.Failure != missing.Failure || inside.String() != missing.String() {
		t.Errorf("a name inside is told from one that does not exist: %+v, %+v", inside, missing)
	}
}

// An answer without end costs no more than its first 64 KiB, and does not hold the delivery up.
func TestEndlessAnswer(t *testing.T) {
	written := make(chan int, 1)
	server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		n, chunk := 0, make([]byte, 32<<10)
		for n < 1<<30 {
			m, err := w.Write(chunk)
			n += m
			if err != nil {
				break
			}
		}
		written <- n
	})
	if a := newSender(t, SenderOptions{Policy: local()}).Send(t.Context(), endpointAt(server.URL), Message{ID: "e"}); a.Failure != "" || a.Status != 200 {
		t.Errorf("got %+v", a)
	}
	if n := <-written; n > 64<<20 {
		t.Errorf("the receiver could write %d bytes", n)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSendTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sender{transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		start := time.Now()
		if a := s.Send(t.Context(), endpointAt("https://8.8.8.8/"), Message{ID: "e"}); a.Failure != FailedTimeout || time.Since(start) != SendTimeout {
			t.Errorf("got %+v after %v", a, time.Since(start))
		}
		// An answer whose body stalls has been given: its status counts.
		s.transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: stalled{r.Context()}}, nil
		})
		if a := s.Send(t.Context(), endpointAt("https://8.8.8.8/"), Message{ID: "e"}); a.Failure != "" || a.Duration != SendTimeout {
			t.Errorf("got %+v", a)
		}
	})
}

type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (stalled) Close() error               { return nil }

// No failure's text holds the URL or the secret: both are the owner's.
func TestErrorsHideTheURL(t *testing.T) {
	s := newSender(t, SenderOptions{Policy: Policy{Resolver: (&fakeDNS{}).resolver()}})
	e := endpointAt("https://unknown.example/topsecret?token=topsecret")
	e.Secrets = []SigningSecret{{Secret: "whsec_topsecret"}}
	for _, secrets := range [][]SigningSecret{e.Secrets, {{Secret: vectorSecret}}} {
		e.Secrets = secrets
		a := s.Send(t.Context(), e, Message{ID: "e"})
		if a.Err == nil || strings.Contains(fmt.Sprintf("%v %s", a.Err, a), "topsecret") {
			t.Errorf("says too much: %v, %s", a.Err, a)
		}
	}
}
