package jobs

import (
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/store"
)

// A job that was turned away is not at fault, unless that happens to it time after time; one that finds out whether its deployment still
// turns calls away never is if it is certain that it does.
func TestWhoIsAtFault(t *testing.T) {
	for _, c := range []struct {
		certain, probe bool
		number, failed int
		is, perhaps    bool
	}{
		{true, false, 1, 0, false, false},
		{true, false, 10, 0, false, false},
		{true, false, 11, 0, true, false},
		{true, false, 11, 1, false, false}, // one of them was charged
		{true, true, 100, 0, false, false},
		{false, false, 1, 0, false, true},
		{false, true, 3, 0, false, true},
		{false, true, 4, 0, true, true},
	} {
		d := Delivery{Delivery: store.Delivery{Number: c.number, Attempt: c.failed, Admission: &store.Admission{
			Reservation: quota.Reservation{Probe: c.probe}, Outcome: &quota.Outcome{Kind: quota.Denied, Certain: c.certain}}}}
		if is, perhaps := d.atFault(); is != c.is || perhaps != c.perhaps {
			t.Errorf("%+v: at fault %t, perhaps %t", c, is, perhaps)
		}
	}
}
