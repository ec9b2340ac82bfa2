package db

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// waitsForDisk asks the database whether the commit of the transaction waits for the disk.
func waitsForDisk(t *Tx) (waits bool, err error) {
	question := "PRAGMA synchronous"
	if t.w.Shared() {
		question = "SELECT CASE current_setting('synchronous_commit') WHEN 'on' THEN 2 WHEN 'off' THEN 1 END"
	}
	_, err = t.Prep(question).One(func(r driver.Row) { waits = r.Int(0) == 2 })
	return waits, err
}

// A transaction of volatile operations alone does not wait for the disk. One more that does not
// say so is enough to make it wait.
func TestVolatileTransactionsDoNotWaitForTheDisk(t *testing.T) {
	withDB(t, func(t *testing.T, s *DB) {
		ask := func(volatile bool, more func()) chan bool {
			answer := make(chan bool, 1)
			go func() {
				waits, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange, Volatile: volatile}, func(tx *Tx) (bool, error) {
					if more != nil {
						more()
					}
					return waitsForDisk(tx)
				})
				if err != nil {
					t.Error(err)
				}
				answer <- waits
			}()
			return answer
		}
		for _, volatile := range []bool{true, false, true, true, false} {
			// What is due by itself makes a transaction wait, now and then.
			for waits := <-ask(volatile, nil); waits == volatile; waits = <-ask(volatile, nil) {
				if !volatile {
					t.Fatal("a commit that somebody relies on did not wait for the disk")
				}
			}
		}
		begun, gate := make(chan struct{}), make(chan struct{})
		first := ask(false, func() { close(begun); <-gate })
		<-begun
		volatile, durable := ask(true, nil), ask(false, nil)
		for len(s.Writer.Ops) < 2 {
			<-time.After(time.Millisecond)
		}
		close(gate)
		if !<-first || !<-volatile || !<-durable {
			t.Error("a commit that somebody relies on did not wait for the disk")
		}
	})
}
