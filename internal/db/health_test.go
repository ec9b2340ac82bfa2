//go:build unix

package db

import (
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// failing returns what is wrong with each part that does not work, and how many parts there are.
func failing(t *testing.T, s *DB) (wrong map[string]forebay.Code, parts int) {
	t.Helper()
	wrong = map[string]forebay.Code{}
	health := s.Health(t.Context())
	for _, p := range health {
		if p.Err != nil {
			wrong[p.Name] = forebay.CodeOf(p.Err)
		}
	}
	return wrong, len(health)
}

// Both writers and the readers are said to fail while the database is away, and to work once it
// is back.
func TestHealthOfBothWritersAndReaders(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*pgtest.Proxy){"refused": (*pgtest.Proxy).Cut, "silent": (*pgtest.Proxy).Stall} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.Database(t)
			u, err := url.Parse(database)
			if err != nil {
				t.Fatal(err)
			}
			proxy := pgtest.NewProxy(t, u.String())
			s, err := Open(t.Context(), Options{URL: proxy.URL(database), Serve: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			if wrong, parts := failing(t, s); len(wrong) > 0 || parts != 3 {
				t.Errorf("of %d parts fail %v", parts, wrong)
			}
			fault(proxy)
			for start := time.Now(); ; {
				wrong, _ := failing(t, s)
				if wrong["writer"] == forebay.CodeUnavailable && wrong["submitter"] == forebay.CodeUnavailable && wrong["readers"] == forebay.CodeUnavailable {
					break
				}
				if time.Since(start) > time.Minute {
					t.Fatalf("what fails is %v", wrong)
				}
			}
			proxy.Heal()
			for start := time.Now(); ; {
				wrong, _ := failing(t, s)
				if len(wrong) == 0 {
					break
				}
				if time.Since(start) > time.Minute {
					t.Fatalf("when the database was back: %v", wrong)
				}
			}
		})
	}
}

// A failed transaction of either writer is known at once: nobody has to ask for it.
func TestHealthKnowsWhatFailed(t *testing.T) {
	s := serve(t, engines["sqlite"](t))
	full := forebay.Errorf(forebay.CodeStorageFull, "full")
	s.Writer.health.noteTransaction(full)
	if wrong, _ := failing(t, s); len(wrong) != 1 || wrong["writer"] != forebay.CodeStorageFull {
		t.Errorf("%v", wrong)
	}
	s.Writer.health.noteTransaction(ErrNotAlone) // says nothing of the database
	if wrong, _ := failing(t, s); len(wrong) != 1 {
		t.Errorf("%v", wrong)
	}
	if _, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, insertNames("another", 1)); err != nil {
		t.Fatal(err)
	}
	if wrong, _ := failing(t, s); len(wrong) > 0 {
		t.Errorf("after a transaction that committed: %v", wrong)
	}
}

// Whoever asks all the time does not have the writers write all the time.
func TestHealthIsCheap(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var commits atomic.Int64
	s.OnCommit(func(Commit) { commits.Add(1) })
	start := time.Now()
	for range 1000 {
		if wrong, parts := failing(t, s); len(wrong) > 0 || parts != 4 {
			t.Fatalf("of %d parts fail %v", parts, wrong)
		}
	}
	if n, most := commits.Load(), 2+int64(time.Since(start)/healthFresh); n > most {
		t.Errorf("%d transactions", n)
	}
}
