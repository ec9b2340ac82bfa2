package documents

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// BenchmarkBesideSplits measures how long a tenant waits for a document that it adds. Meanwhile
// 256 callers of another have documents split, on PostgreSQL.
func BenchmarkBesideSplits(b *testing.B) {
	s := fixture.Serving(b, db.Options{URL: dbtest.Postgres(b)})
	d := &tripsOfDocuments{TB: b, s: s, tenant: tenantOf(b, s, "acme")}
	beside := &tripsOfDocuments{TB: b, s: s, tenant: tenantOf(b, s, "beside")}
	uploads := make([]NewRevision, b.N)
	for i := range uploads {
		uploads[i] = d.upload(d.newDocument())
	}
	splits := make([]uploaded, b.N)
	together := func(do func(i int)) {
		const callers = 256
		next := make(chan int)
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for i := range next {
					do(i)
				}
			})
		}
		for i := range b.N {
			next <- i
		}
		close(next)
		running.Wait()
	}
	together(func(i int) {
		_, err := s.Documents.AddRevision(b.Context(), uploads[i])
		d.check(err)
		rev, err := s.Documents.RevisionOf(b.Context(), d.tenant, uploads[i].ID)
		d.check(err)
		d.check(s.Documents.BeginSplit(b.Context(), d.tenant, rev.No, splitter))
		splits[i] = uploaded{uploads[i].DocumentID, rev}
	})
	over := make(chan struct{})
	var took []time.Duration
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			upload := beside.upload(beside.newDocument())
			before := time.Now()
			_, err := s.Documents.AddRevision(b.Context(), upload)
			d.check(err)
			took = append(took, time.Since(before))
		}
	})
	b.ResetTimer()
	together(func(i int) { d.check(d.endSplit(splits[i])) })
	b.StopTimer()
	close(over)
	waiting.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
}
