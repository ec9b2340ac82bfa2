package content_test

import (
	"testing"

	"github.com/forebayhq/forebay/internal/servicebus/content"
)

// BenchmarkContent reads a message with properties of every type, and writes it.
func BenchmarkContent(b *testing.B) {
	m := rich()
	m.Data = [][]byte{make([]byte, 1024)}
	raw, err := m.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := content.FromAMQP(content.FormatMessage, raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	all, err := content.FromAMQP(content.FormatMessage, raw)
	if err != nil {
		b.Fatal(err)
	}
	stored := delivered(all[0])
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := content.ToAMQP(stored, content.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
