package jobs

import (
	"testing"

	"github.com/forebayhq/forebay/internal/listing"
)

// A page that found nothing still says where the list goes on. The last one says that it does not.
func TestPageWithoutItems(t *testing.T) {
	var belows []int64
	cursor := ""
	for _, next := range []int64{7, 3, 0} {
		page, err := listing.Below(10, cursor, func(below int64, limit int) ([]string, int64, error) {
			belows = append(belows, below)
			return nil, next, nil
		})
		if err != nil || page.Items == nil || len(page.Items) != 0 || page.NextCursor != listing.EncodeCursor(next) {
			t.Fatalf("%+v, %v", page, err)
		}
		cursor = page.NextCursor
	}
	if belows[0] != 0 || belows[1] != 7 || belows[2] != 3 {
		t.Errorf("read below %v", belows)
	}
}
