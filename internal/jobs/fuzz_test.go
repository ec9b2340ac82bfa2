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
