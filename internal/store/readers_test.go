package store

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/turns"
)

// However many reads of a tenant take long, another tenant's does not wait for them.
func TestReadsOfOneTenantLeaveAConnection(t *testing.T) {
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			s, _, _ := openWith(t, database(t))
			busy := turns.With(t.Context(), "busy")
			reading, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			for range 3 * maxReaders {
				go func() {
					ended <- s.read(busy, func(conn) error {
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
			go func() { read <- s.read(turns.With(t.Context(), "other"), func(conn) error { return nil }) }()
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
