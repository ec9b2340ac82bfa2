package dbtest

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// OverANetwork opens stores that reach their PostgreSQL through a proxy. few fails if something
// takes more round trips.
func (f Fixture[S]) OverANetwork(t *testing.T) (s S, few func(most int64, what string, do func())) {
	t.Helper()
	direct := Postgres(t)
	proxy := pgtest.NewProxy(t, direct)
	s = f.Serve(t, db.Options{URL: proxy.URL(direct)})
	t.Cleanup(func() { f.DB(s).Close() })
	return s, func(most int64, what string, do func()) {
		t.Helper()
		before := proxy.RoundTrips()
		do()
		if trips := proxy.RoundTrips() - before; trips > most { // some are the store's own, by time
			t.Errorf("%s took %d round trips", what, trips)
		}
	}
}
