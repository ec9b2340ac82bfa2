package wire

import (
	"bytes"
	"testing"
)

func benchmarkAppend(b *testing.B, p Performative) {
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := AppendPerformative(dst, p); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkDecode(b *testing.B, p Performative) {
	encoded, err := AppendPerformative(nil, p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodePerformative(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

var (
	benchTransfer    = &Transfer{Handle: 1, DeliveryID: new(uint32(1 << 20)), DeliveryTag: sampleUUID[:], MessageFormat: new(uint32(0))}
	benchDisposition = &Disposition{Role: RoleReceiver, First: 1 << 20, Last: new(uint32(1<<20 + 50)), Settled: true, State: &Accepted{}}
	benchFlow        = &Flow{NextIncomingID: new(uint32(1 << 20)), IncomingWindow: 1 << 30, NextOutgoingID: 1, OutgoingWindow: 5000, Handle: new(uint32(1)), DeliveryCount: new(uint32(1 << 20)), LinkCredit: new(uint32(1000))}
)

func BenchmarkAppendTransfer(b *testing.B)    { benchmarkAppend(b, benchTransfer) }
func BenchmarkDecodeTransfer(b *testing.B)    { benchmarkDecode(b, benchTransfer) }
func BenchmarkAppendDisposition(b *testing.B) { benchmarkAppend(b, benchDisposition) }
func BenchmarkDecodeDisposition(b *testing.B) { benchmarkDecode(b, benchDisposition) }
func BenchmarkDecodeFlow(b *testing.B)        { benchmarkDecode(b, benchFlow) }

// benchMessage is a usual message with a body of 1 KiB.
func benchMessage() *Message {
	return &Message{
		Header:                &Header{Durable: true, TTL: new(uint32(3600_000))},
		MessageAnnotations:    Map{{Symbol("x-opt-sequence-number"), int64(1 << 40)}, {Symbol("x-opt-enqueued-time"), sampleTime}},
		Properties:            &Properties{MessageID: "7d5a6a2e-5b1c", ContentType: new(Symbol("application/json")), GroupID: new("group"), CreationTime: sampleTime},
		ApplicationProperties: Map{{"kind", "order"}, {"count", int32(1000)}},
		Data:                  [][]byte{bytes.Repeat([]byte("x"), 1024)},
	}
}

func BenchmarkAppendMessage(b *testing.B) {
	m, dst := benchMessage(), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Append(dst); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeMessage(b *testing.B) {
	encoded, err := benchMessage().Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeMessage(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSections(b *testing.B) {
	encoded, err := benchMessage().Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sections(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHotPathsAllocateLittle keeps the paths that every message takes from growing.
func TestHotPathsAllocateLittle(t *testing.T) {
	dst := make([]byte, 0, 4096)
	m := benchMessage()
	message, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(p Performative) []byte {
		b, err := AppendPerformative(nil, p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	transfer, disposition := encoded(benchTransfer), encoded(benchDisposition)
	for name, c := range map[string]struct {
		limit float64
		run   func() error
	}{
		"append transfer":    {0, func() error { _, err := AppendPerformative(dst, benchTransfer); return err }},
		"append disposition": {0, func() error { _, err := AppendPerformative(dst, benchDisposition); return err }},
		"append frame":       {0, func() error { _, err := AppendFrame(dst, FrameAMQP, 1, benchTransfer, message); return err }},
		"append message":     {0, func() error { _, err := m.Append(dst); return err }},
		"decode transfer":    {1, func() error { _, _, err := DecodePerformative(transfer); return err }},
		"decode disposition": {1, func() error { _, _, err := DecodePerformative(disposition); return err }},
		"sections":           {1, func() error { _, err := Sections(message); return err }},
		"decode message":     {24, func() error { _, err := DecodeMessage(message); return err }},
	} {
		if got := testing.AllocsPerRun(100, func() {
			if err := c.run(); err != nil {
				t.Error(err)
			}
		}); got > c.limit {
			t.Errorf("%s: %v allocations, want %v at most", name, got, c.limit)
		}
	}
}
