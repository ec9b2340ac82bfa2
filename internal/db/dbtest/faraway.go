package dbtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// farAway are the times that a round trip takes in [Fixture.FarAway].
var farAway = []time.Duration{0, time.Millisecond, 5 * time.Millisecond}

// ManyAtOnce makes these calls, in their order. 256 of them are under way at once.
func ManyAtOnce(tb testing.TB, calls []func() error) {
	next := make(chan func() error)
	var callers sync.WaitGroup
	for range 256 {
		callers.Go(func() {
			for call := range next {
				if err := call(); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	for _, call := range calls {
		next <- call
	}
	close(next)
	callers.Wait()
}

// FarAway measures kinds of operations on a PostgreSQL that is some time away. kinds makes, with
// stores, a function for each that prepares so many calls.
func (f Fixture[S]) FarAway(b *testing.B, kinds func(testing.TB, S) map[string]func(n int) []func() error) {
	for _, delay := range farAway {
		b.Run(fmt.Sprint(delay), func(b *testing.B) {
			direct := Postgres(b)
			proxy := pgtest.NewProxy(b, direct)
			s := f.Serving(b, db.Options{URL: proxy.URL(direct)})
			var transactions, trips atomic.Int64
			f.DB(s).OnCommit(func(c db.Commit) {
				if c.Operations > 0 {
					transactions.Add(1)
					trips.Add(c.RoundTrips)
				}
			})
			for name, prepare := range kinds(b, s) {
				b.Run(name, func(b *testing.B) {
					proxy.Delay(0)
					for _, call := range prepare(8) { // which prepares the statements
						if err := call(); err != nil {
							b.Fatal(err)
						}
					}
					calls := prepare(b.N)
					proxy.Delay(delay)
					transactions.Store(0)
					trips.Store(0)
					b.ResetTimer()
					ManyAtOnce(b, calls)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
					n := float64(max(transactions.Load(), 1))
					b.ReportMetric(float64(b.N)/n, "ops/transaction")
					b.ReportMetric(float64(trips.Load())/n, "trips/transaction")
				})
			}
		})
	}
}
