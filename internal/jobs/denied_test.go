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
		before         int
		is, perhaps    bool
	}{
		{true, false, 0, false, false},
		{true, false, 9, false, false},
		{true, false, 10, true, false},
		{true, true, 100, false, false},
		{false, false, 0, false, true},
		{false, true, 2, false, true},
		{false, true, 3, true, true},
	} {
		d := Delivery{Delivery: store.Delivery{Admission: &store.Admission{
			Reservation: quota.Reservation{Probe: c.probe}, Outcome: &quota.Outcome{Kind: quota.Denied, Certain: c.certain}}}}
		if is, perhaps := d.atFault(c.before); is != c.is || perhaps != c.perhaps {
			t.Errorf("%+v: at fault %t, perhaps %t", c, is, perhaps)
		}
	}
}
