package db

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/turns"
)

// However many reads of a tenant take long, another tenant's does not wait for them.
func TestReadsOfOneTenantLeaveAConnection(t *testing.T) {
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, database(t))
			busy := turns.With(t.Context(), "busy")
			reading, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			for range 3 * maxReaders {
				go func() {
					ended <- s.Read(busy, func(driver.Conn) error {
						reading <- struct{}{}
						<-goOn
						return nil
					})
				}()
			}
			for range maxReaders - 1 {
				<-reading
			}
			read := make(chan error)
			go func() { read <- s.Read(turns.With(t.Context(), "other"), func(driver.Conn) error { return nil }) }()
			select {
			case <-reading:
				t.Error("one tenant reads on all connections")
			case err := <-read:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("another tenant waits")
			}
			close(goOn)
			go func() {
				for range 3*maxReaders - (maxReaders - 1) {
					<-reading
				}
			}()
			for range 3 * maxReaders {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A read begins again where a connection was lost while it stood idle, and not once it has seen
// rows: it would see them twice.
func TestReadsBeginAgainOnlyBeforeARow(t *testing.T) {
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, database(t))
			for name, c := range map[string]struct{ rows, runs int }{"idle": {0, 2}, "reading": {1, 1}} {
				for range maxReaders { // all are in use
					if err := s.Read(t.Context(), func(c driver.Conn) error { return c.Prep("SELECT 1").Each(nil) }); err != nil {
						t.Fatal(err)
					}
				}
				runs := 0
				err := s.Read(t.Context(), func(on driver.Conn) error {
					runs++
					for range c.rows {
						if err := on.Prep("SELECT 1").Each(nil); err != nil {
							return err
						}
					}
					if runs == 1 {
						return driver.ErrDisconnected
					}
					return nil
				})
				if runs != c.runs || (err == nil) != (c.runs == 2) {
					t.Errorf("%s: it ran %d times: %v", name, runs, err)
				}
			}
		})
	}
}

// One read after the other is made on one connection: what it has cached is of use, and no other
// is opened.
func TestReadsInTurnUseOneConnection(t *testing.T) {
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, database(t))
			used := map[driver.Driver]bool{}
			for range 2 * maxReaders {
				if err := s.Read(t.Context(), func(c driver.Conn) error { used[c.Driver] = true; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if len(used) != 1 {
				t.Errorf("%d connections were used", len(used))
			}
		})
	}
}
