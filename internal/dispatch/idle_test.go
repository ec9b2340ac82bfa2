package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/jobs"
)

// Who became idle last gets the next delivery, and those that are idle for long end.
func TestIdleGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = time.Minute
		var l idlers
		ctx, stop := context.WithCancel(t.Context())
		go l.trim(ctx, period)
		var got [5]*jobs.Delivery
		var ended [5]atomic.Int64 // after the begin
		begin := time.Now()
		over := func() (n int) {
			for i := range ended {
				if ended[i].Load() > 0 {
					n++
				}
			}
			return n
		}
		start := func(n int) {
			go func() {
				w := newIdler()
				for d := l.wait(w); d != nil; d = l.wait(w) {
					got[n] = d
				}
				ended[n].Store(int64(time.Since(begin)))
			}()
			synctest.Wait()
		}
		if l.hand(&jobs.Delivery{}) {
			t.Fatal("a delivery was handed to nobody")
		}
		for n := range 3 {
			start(n)
		}
		first, second := &jobs.Delivery{}, &jobs.Delivery{}
		if !l.hand(first) || !l.hand(second) {
			t.Fatal("nobody took a delivery")
		}
		synctest.Wait()
		if got[2] != first || got[1] != second || got[0] != nil {
			t.Errorf("the deliveries went to %v", got)
		}
		for range 4 { // one is used again and again
			<-time.After(period/2 + time.Second)
			if !l.hand(first) {
				t.Fatal("all have ended")
			}
			synctest.Wait()
		}
		if over() != 2 || ended[0].Load() != int64(2*period) {
			t.Errorf("%d have ended, the first after %v", over(), time.Duration(ended[0].Load()))
		}
		<-time.After(10 * period)
		synctest.Wait()
		if over() != 3 || l.hand(first) {
			t.Errorf("%d of 3 have ended", over())
		}
		start(3)
		stop()
		synctest.Wait()
		start(4) // which was busy when the stop came
		if over() != 5 || l.hand(first) {
			t.Errorf("%d of 5 have ended after the stop", over())
		}
	})
}
