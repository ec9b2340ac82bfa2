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
	begins, splits := make([]func() error, b.N), make([]func() error, b.N)
	for i := range b.N {
		var u uploaded
		begins[i] = func() error {
			_, err := s.Documents.AddRevision(b.Context(), uploads[i])
			if err != nil {
				return err
			}
			rev, err := s.Documents.RevisionOf(b.Context(), d.tenant, uploads[i].ID)
			if err != nil {
				return err
			}
			u = uploaded{uploads[i].DocumentID, rev}
			return s.Documents.BeginSplit(b.Context(), rev, splitter)
		}
		splits[i] = func() error { return d.endSplit(u) }
	}
	dbtest.ManyAtOnce(b, begins)
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
	dbtest.ManyAtOnce(b, splits)
	b.StopTimer()
	close(over)
	waiting.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
}
