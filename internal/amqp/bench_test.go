package amqp_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

const benchSize = 1024

// BenchmarkClientSends measures messages of 1 KiB that Microsoft's client sends over loopback.
// Each is accepted at once. 16 goroutines send on each link.
func BenchmarkClientSends(b *testing.B) {
	for _, links := range []int{1, 32} {
		b.Run(fmt.Sprintf("links=%d", links), func(b *testing.B) {
			s := serve(b, amqp.Options{Handler: accepting()})
			conn := dial(b, s, nil)
			var left atomic.Int64
			left.Store(int64(b.N))
			payload := make([]byte, benchSize)
			var senders []*goamqp.Sender
			for range links {
				senders = append(senders, sender(b, session(b, conn), "q", nil))
			}
			b.ResetTimer()
			var done sync.WaitGroup
			for _, l := range senders {
				for range 16 {
					done.Go(func() {
						ctx := b.Context()
						for left.Add(-1) >= 0 {
							if err := l.Send(ctx, goamqp.NewMessage(payload), nil); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			done.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkClientReceives measures messages of 1 KiB that Microsoft's client receives, and accepts
// one by one.
func BenchmarkClientReceives(b *testing.B) {
	for _, links := range []int{1, 32} {
		b.Run(fmt.Sprintf("links=%d", links), func(b *testing.B) {
			s := serve(b, amqp.Options{Handler: endless(false)})
			conn := dial(b, s, nil)
			var left atomic.Int64
			left.Store(int64(b.N))
			var receivers []*goamqp.Receiver
			for range links {
				receivers = append(receivers, receiver(b, session(b, conn), "q", &goamqp.ReceiverOptions{Credit: 500}))
			}
			b.ResetTimer()
			var done sync.WaitGroup
			for _, l := range receivers {
				done.Go(func() {
					ctx := b.Context()
					for left.Add(-1) >= 0 {
						m, err := l.Receive(ctx, nil)
						if err == nil {
							err = l.AcceptMessage(ctx, m)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			done.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// endless sends as many messages of 1 KiB as there is credit for.
func endless(settled bool) *handler {
	return &handler{outgoing: func(l *amqp.Outgoing) {
		if l.Accept(amqp.OutgoingOptions{}) != nil {
			return
		}
		payload := append([]byte{0, 0x53, 0x75, 0xb0, 0, 0, 4, 0}, make([]byte, benchSize)...)
		tag := []byte("0123456789abcdef")
		for {
			if _, _, err := l.WaitCredit(l.Context()); err != nil {
				return
			}
			if _, err := l.Send(l.Context(), amqp.Transfer{Tag: tag, Payload: payload, Settled: settled}); err != nil {
				return
			}
		}
	}}
}

// BenchmarkPipelinedSends measures messages of 1 KiB from a client that encodes nothing. It sends
// the same bytes again, as far as it has credit, and counts the outcomes.
func BenchmarkPipelinedSends(b *testing.B) {
	s := serve(b, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Credit: 1000, Receive: func(d *amqp.Delivery) { d.Settle(&wire.Accepted{}) }})
	}}})
	p := connect(b, s)
	p.begin(0)
	credit := *p.attachSender(0, 0, "q").LinkCredit
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	frame := p.frames(0, transfer(0, 1<<30), make([]byte, benchSize)) // an id of full width
	at := bytes.Index(frame, []byte{wire.ConstructorUint, 1 << 6, 0, 0, 0}) + 1
	batch := bytes.Repeat(frame, 50)
	r := &peer{t: b, Conn: &buffered{p.Conn, bufio.NewReaderSize(p.Conn, 64<<10)}}
	b.ResetTimer()
	for sent, settled := uint32(0), 0; settled < b.N; {
		for sent+50 <= credit {
			for i := range uint32(50) {
				binary.BigEndian.PutUint32(batch[int(i)*len(frame)+at:], sent+i)
			}
			p.write(batch)
			sent += 50
		}
		f, err := r.read()
		if err != nil {
			b.Fatal(err)
		}
		switch f := f.p.(type) {
		case *wire.Disposition:
			settled += int(*f.Last-f.First) + 1
		case *wire.Flow:
			credit = *f.DeliveryCount + *f.LinkCredit
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

type buffered struct {
	net.Conn
	*bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.Reader.Read(p) }

// BenchmarkPipelinedReceives measures messages of 1 KiB to a client that only counts frames.
func BenchmarkPipelinedReceives(b *testing.B) {
	s := serve(b, amqp.Options{Handler: endless(true)})
	p := connect(b, s)
	p.begin(0)
	p.attachReceiver(0, 0, "q")
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	flow := credit(0, 0, 1<<31)
	flow.IncomingWindow = 1 << 31
	b.ResetTimer()
	p.send(0, flow)
	r, buf := bufio.NewReaderSize(p.Conn, 64<<10), []byte(nil)
	for range b.N {
		var err error
		if _, buf, err = wire.ReadFrame(r, 1<<20, buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkIdleConnections measures what a thousand connections take that have a session and two
// links, and do nothing: bytes of heap and of stacks, and goroutines, each.
func BenchmarkIdleConnections(b *testing.B) {
	for range b.N {
		bytes, goroutines := idle(b, 1000)
		b.ReportMetric(bytes, "bytes/connection")
		b.ReportMetric(goroutines, "goroutines/connection")
	}
}

func TestIdleConnectionsGiveTheirBuffersBack(t *testing.T) {
	if bytes, goroutines := idle(t, 200); bytes > 48<<10 || goroutines > 2.1 {
		t.Errorf("an idle connection takes %.0f bytes and %.1f goroutines", bytes, goroutines)
	}
}

// idle returns what each of n connections takes while it does nothing, after it was busy. What the
// client's end takes is counted too.
func idle(t testing.TB, n int) (bytes, goroutines float64) {
	s := serve(t, amqp.Options{Handler: accepting()})
	memory := func() (bytes, goroutines float64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
	}
	bytes, goroutines = memory()
	var peers []*peer
	for range n {
		p := connect(t, s)
		p.begin(0)
		p.attachSender(0, 0, "q")
		p.attachReceiver(0, 1, "q")
		p.send(0, transfer(0, 0), make([]byte, 50_000))
		expect[*wire.Disposition](p)
		p.buf = nil
		peers = append(peers, p)
	}
	more, running := memory()
	for _, p := range peers {
		p.Close()
	}
	for range n {
		s.end(t)
	}
	return (more - bytes) / float64(n), (running - goroutines) / float64(n)
}
