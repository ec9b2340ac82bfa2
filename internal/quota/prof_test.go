package quota_test

import (
	"fmt"
	"github.com/forebayhq/forebay/internal/quota"
	"testing"
)

func TestOne(t *testing.T) {
	for _, k := range kinds() {
		if k.name != "rolling window" {
			continue
		}
		measure(t, 2, k.server, withForebay(k.limits))
	}
}
func TestDebug(t *testing.T) {
	v := &server{quota: tpm, counting: tenSeconds, silent: true}
	s := newSimulation(1, 10000, v)
	f := runForebay(s, azureLimits, 1, 256)
	debugThrottle = func(j *job, r quota.Reservation) {
		f.with(func(st *quota.State) {
			x := st.Status(s.now, azureLimits)
			fmt.Printf("%7.2f s phase %5.2f cost %d charge %d used(srv) %.0f sum %d L %d pace %d kappa %.3f sigma %.3f sent %.3f in flight %d\n", float64(s.now-epoch)/1000, float64((s.now+v.phase)%60000)/1000, r.Amount[0], j.charge(0), v.used, x.Used[0], x.Limit[0], x.PacePercent, x.Kappa, x.Sigma, float64(r.At-epoch)/1000, x.InFlight)
		})
	}
	for i := 0; i < 7200; i += 200 {
		s.after(int64(i)*1000, func() {
			f.with(func(st *quota.State) {
				x := st.Status(s.now, azureLimits)
				fmt.Printf("%5d sum %d L %d pace %d kappa %.3f sigma %.3f srv %.0f line %d first %d passed %v\n", (s.now-epoch)/1000, x.Used[0], x.Limit[0], x.PacePercent, x.Kappa, x.Sigma, v.used, len(f.line), f.line[0].guess, f.line[0].id)
			})
		})
	}
	s.run()
	debugThrottle = nil
}
