package jobs

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// BenchmarkClaim64 claims 64 jobs at a time from a backlog of as many tenants, priorities and
// classes. Run it with -benchtime 300x or less: the backlog holds 30,000 jobs.
func BenchmarkClaim64(b *testing.B) {
	backlogs := []struct{ tenants, priorities, classes int }{{1, 1, 1}, {1, 10, 4}, {50, 1, 1}, {50, 10, 4}, {3000, 1, 1}, {3000, 3, 2}}
	run := func(b *testing.B, opts db.Options, tenants, priorities, classes int) {
		const jobs = 30_000
		s, _, queueID := openWith(b, opts)
		numbers := make([]int64, tenants)
		for i := range numbers {
			var err error
			if numbers[i], err = s.Queues.EnsureTenant(b.Context(), fmt.Sprint("t", i)); err != nil {
				b.Fatal(err)
			}
		}
		for from := 0; from < jobs; from += 1000 {
			list := make([]NewJob, 1000)
			for i := range list {
				n := from + i
				list[i] = NewJob{ID: fmt.Sprint(n), Tenant: numbers[n%tenants], Queue: queueID, Task: "t", Priority: n / tenants % priorities,
					Class: 1 + n/tenants/priorities%classes, MaxAttempts: 3, Input: []byte("1"), InputSize: 1}
			}
			if _, err := s.Jobs.Submit(b.Context(), list); err != nil {
				b.Fatal(err)
			}
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 64, MaxBytes: 1 << 30, Lock: time.Hour, Share: noShare}
		b.ResetTimer()
		for b.Loop() {
			if _, err := s.Jobs.Claim(b.Context(), request); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, x := range backlogs {
		name := fmt.Sprintf("%dx%dx%d", x.tenants, x.priorities, x.classes)
		b.Run("sqlite/"+name, func(b *testing.B) {
			run(b, db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true}, x.tenants, x.priorities, x.classes)
		})
		b.Run("postgresql/"+name, func(b *testing.B) {
			run(b, db.Options{URL: pgtest.Database(b), Serve: true}, x.tenants, x.priorities, x.classes)
		})
	}
}
