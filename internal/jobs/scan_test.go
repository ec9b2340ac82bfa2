package jobs

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// inBubble tests a store on SQLite with a queue, in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, s *stores, queue int64)) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	synctest.Test(t, func(t *testing.T) {
		s := fixture.Bubble(path).Open(t)
		defer s.DB.Close()
		queue := queueOf(t, s, "q")
		test(t, s, queue)
	})
}

func submitAll(t *testing.T, s *stores, jobs ...NewJob) {
	t.Helper()
	for i := range jobs {
		jobs[i].MaxAttempts, jobs[i].Input = 3, []byte("1")
		if jobs[i].InputSize == 0 {
			jobs[i].InputSize = 1
		}
	}
	if made, err := s.Jobs.Submit(t.Context(), jobs); err != nil || made[0].Err != nil {
		t.Fatal(err, made)
	}
}

// More tenants than one scan asks have all their jobs with workers, or scheduled. A claim
// waits, and gets each job when it is ready.
func TestMoreLinesThanALookAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		const tenants, locked = 3 * flows.MaxFlows, flows.MaxFlows
		began := time.Now()
		for i := range tenants {
			job := NewJob{ID: fmt.Sprint(i), Tenant: tenantNamed(t, s, fmt.Sprint("t", i)), Queue: queueID, Task: "t", Priority: i % 10}
			if i >= locked {
				at := began.Add(time.Duration(i) * time.Second)
				job.ScheduledAt = &at
			}
			submitAll(t, s, job)
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 7, MaxBytes: 1 << 20, Lock: time.Hour}
		for n := 0; n < tenants; {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range got {
				if late := time.Since(d.ScheduledAt); n >= locked && late > 0 {
					t.Errorf("%s is %s late", d.ID, late)
				}
			}
			n += len(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := s.Jobs.Claim(ctx, request); err == nil {
			t.Errorf("claimed %v", got)
		}
	})
}

// A new job does not go before those of its line that a look has not come to.
func TestNewJobKeepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		job := func(id string, priority int) NewJob {
			return NewJob{ID: id, Tenant: tenant, Queue: queueID, Task: "t", Priority: priority}
		}
		want := []string{"high"}
		for i := range 10 {
			want = append(want, fmt.Sprint(i))
			submitAll(t, s, job(fmt.Sprint(i), 5))
		}
		submitAll(t, s, job("high", 9))
		busy := make(chan struct{})
		go db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (struct{}, error) { <-busy; return struct{}{}, nil })
		synctest.Wait()
		c := &claim{ClaimRequest: ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 20, MaxBytes: 1 << 20, Lock: time.Hour}, Waiter: queue.NewWaiter()}
		c.part = Key.In(s.DB.Writer)
		claimed, submitted := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(claimed)
			if err := queue.Await(t.Context(), s.DB.Writer, c, &c.Waiter); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		go func() {
			defer close(submitted)
			if _, err := s.Jobs.Submit(t.Context(), []NewJob{job("new", 5)}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(busy)
		<-claimed
		<-submitted
		var got []string
		for _, d := range c.deliveries {
			got = append(got, d.ID)
		}
		if got = slices.DeleteFunc(got, func(id string) bool { return id == "new" && id == got[len(got)-1] }); !slices.Equal(got, want) {
			t.Errorf("delivered %v", got)
		}
	})
}

// What becomes ready while a look is made is either found or noted.
func TestReadyDuringALook(t *testing.T) {
	t.Parallel()
	c := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := c.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	queueID := queueOf(t, s, "q")
	tenant := tenantNamed(t, s, "a")
	// The clock ticks each time that somebody looks at it.
	c.Run(t, `CREATE SEQUENCE ticks; CREATE OR REPLACE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
		'SELECT to_timestamp((at + nextval(''ticks'')) / 1000.0) FROM clock'`)
	first := s.DB.Now().Add(time.Second).Truncate(time.Second)
	const jobs = 40
	for i := range jobs {
		at := first.Add(time.Duration(i) * time.Millisecond)
		submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: "t", Priority: 5, ScheduledAt: &at})
	}
	c.Run(t, fmt.Sprintf("UPDATE clock SET at = %d; ALTER SEQUENCE ticks RESTART", first.UnixMilli()))
	_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
		for range 10 {
			l := tx.w.newScan(queue.SubqueueOf(queueID, queue.SubqueueMain), []*claim{{ClaimRequest: ClaimRequest{Max: 2 * jobs}}}, tx.Now)
			if err := l.run(tx.claims(), nil); err != nil {
				return struct{}{}, err
			}
			next := l.flows.NextReady(tx.w.restsUntil, func(int64) bool { return false })
			if left := first.UnixMilli() + int64(len(l.found)); len(l.found) < jobs && next > left {
				t.Errorf("the next is noted for %d, and is ready at %d", next, left)
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Times of a database whose clock is another are told by this process's clock.
func TestTimesOfTheDatabase(t *testing.T) {
	c := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := c.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	const little = time.Minute
	if off := time.Until(s.DB.ToLocal(driver.FromMillis(c.Now()))).Abs(); off > little || time.Until(s.DB.Now()).Abs() < little {
		t.Errorf("what is now there is %s away here", off)
	}
}

// A transaction begins with a scan. If its connection breaks once the scan is answered, it
// begins again on another one. Its claim gets each job once, and not once from either scan.
func TestClaimWhoseBeginningWasLost(t *testing.T) {
	direct := dbtest.Postgres(t)
	admin, err := pgconn.Connect(t.Context(), direct)
	mustDo(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	run := func(sql string) string {
		results, err := admin.Exec(t.Context(), sql).ReadAll()
		mustDo(t, err)
		return string(results[len(results)-1].Rows[0][0])
	}
	// A transaction asks for its process last as it begins. With this one the process ends once
	// the sequence is set to 1.
	run(`CREATE SCHEMA broken; CREATE SEQUENCE broken.asked START 10;
		CREATE FUNCTION broken.pg_backend_pid() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('broken.asked') = 2 THEN PERFORM pg_terminate_backend(pg_catalog.pg_backend_pid()); END IF;
			RETURN pg_catalog.pg_backend_pid();
		END $$; SELECT 1`)
	u, err := url.Parse(direct)
	mustDo(t, err)
	query := u.Query()
	query.Set("search_path", "broken,pg_catalog")
	u.RawQuery = query.Encode()
	s, tenant, q := openWith(t, db.Options{URL: u.String()})
	subqueue := queue.SubqueueOf(q, queue.SubqueueMain)
	put(t, s, tenant, q, 1, nil)
	take(t, s, subqueue, 1, time.Minute) // the flows are known from here on
	put(t, s, tenant, q, 2, nil)
	run("SELECT setval('broken.asked', 1)")
	got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: subqueue, Max: 8, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
	mustDo(t, err)
	if run("SELECT last_value FROM broken.asked") == "1" {
		t.Fatal("no connection broke")
	}
	var claimed []string
	for _, d := range got {
		claimed = append(claimed, d.ID)
	}
	if len(claimed) != 2 || claimed[0] == claimed[1] {
		t.Errorf("2 jobs were ready, the claim got %v", claimed)
	}
}

// A scan in the middle of a transaction sees a clock that has gone on. What is ready
// only since the transaction's own time is left for the next one, and that is soon.
func TestScanLeavesWhatIsEarly(t *testing.T) {
	job := func(flow, ready int64) candidate {
		return candidate{flow: flow, LockedJob: LockedJob{ScheduledAt: time.UnixMilli(ready)}}
	}
	l := scan{
		found:       []candidate{job(1, 90), job(1, 100), job(1, 101), job(2, 131), job(2, 140)},
		flowQueries: []flows.Query{{Flow: 1, Got: 3, NextReady: db.Never}, {Flow: 2, Got: 2, NextReady: 200}},
	}
	l.leaveEarly(100)
	if len(l.found) != 2 || l.found[1].ScheduledAt.UnixMilli() != 100 {
		t.Errorf("found %+v", l.found)
	}
	if first, second := l.flowQueries[0], l.flowQueries[1]; first.Got != 2 || first.NextReady != 101 || second.Got != 0 || second.NextReady != 131 {
		t.Errorf("flows %+v", l.flowQueries)
	}
}
