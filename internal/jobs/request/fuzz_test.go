package request

import "testing"

func FuzzTraceparent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, s string) {
		if ValidTraceparent(s) && len(s) != 55 {
			t.Errorf("%q passed", s)
		}
	})
}
