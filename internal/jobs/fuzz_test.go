package jobs

import (
	"testing"

	"github.com/forebayhq/forebay/internal/listing"
)

func FuzzDecodeCursor(f *testing.F) {
	f.Add("")
	f.Add(listing.EncodeCursor(1))
	f.Add(listing.EncodeCursor(1 << 40))
	f.Add("AQAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, cursor string) {
		seq, err := listing.DecodeCursor(cursor)
		if err == nil && cursor != "" && (seq <= 0 || listing.EncodeCursor(seq) != cursor) {
			t.Errorf("%q was read as %d", cursor, seq)
		}
	})
}

func FuzzTraceparent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, s string) {
		if validTraceparent(s) && len(s) != 55 {
			t.Errorf("%q passed", s)
		}
	})
}
