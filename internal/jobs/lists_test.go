package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// listed returns what all pages of a list hold, and how many pages there are.
func listed(t *testing.T, s *stores, q JobQuery) (seqs []int64, pages int) {
	t.Helper()
	for {
		page, err := s.Jobs.Jobs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, job := range page.Jobs {
			seqs = append(seqs, job.Seq)
		}
		if q.Below = page.Next; page.Next == 0 {
			return seqs, pages
		}
	}
}

// Lists hold what a look at every job finds, whatever they select and whichever index they use.
func TestJobListsFindWhatIsThere(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		random := rand.New(rand.NewPCG(1, 2))
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		tenants := []int64{tenantNamed(t, s, "a"), tenantNamed(t, s, "b")}
		queues := []int64{queueOf(t, s, "q"), queueOf(t, s, "r")}
		jobs := make([]NewJob, 300)
		for i := range jobs {
			metadata, err := json.Marshal(map[string]string{"team": pick("red", "blue"), "n": fmt.Sprint(i % 7)})
			mustDo(t, err)
			jobs[i] = NewJob{ID: fmt.Sprintf("job_%d", i), Tenant: tenants[random.IntN(2)], Queue: queues[random.IntN(2)], Task: pick("t", "u"), Priority: random.IntN(3),
				CorrelationID: pick("", "c", "d"), SessionID: pick("", "", "s", "z"), Metadata: metadata}
		}
		submitAll(t, s, jobs...)
		for i, no := range queues {
			for j, d := range take(t, s, queue.SubqueueOf(no, queue.SubqueueMain), 20, time.Hour) {
				switch {
				case j%4 == 0:
					mustDo(t, s.Jobs.DeadLetter(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "x"}, queue.SubqueueDeadLetter, "x"))
				case j%4 == 1 && i == 0:
					_, err := s.Jobs.Cancel(t.Context(), d.Seq)
					mustDo(t, err)
				case j%4 < 3:
					mustDo(t, s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded, Usage: forebay.TokenUsage{InputTokens: 3}}, Output{Inline: []byte("1"), Size: 1}))
				}
			}
		}
		whole, err := s.Jobs.Jobs(t.Context(), JobQuery{Limit: 500})
		mustDo(t, err)
		if len(whole.Jobs) != len(jobs) || whole.Next != 0 {
			t.Fatalf("%d jobs, next %d", len(whole.Jobs), whole.Next)
		}
		succeeded := 0
		teams := make([]string, len(whole.Jobs))
		for i, job := range whole.Jobs {
			var metadata map[string]string
			mustDo(t, json.Unmarshal(job.Metadata, &metadata))
			teams[i] = metadata["team"]
			if job.Status == forebay.StatusSucceeded {
				succeeded++
				if job.Usage.InputTokens != 3 || job.Result != nil {
					t.Errorf("%+v", job)
				}
			}
		}
		if succeeded < 5 {
			t.Fatalf("%d succeeded", succeeded)
		}
		two := 2
		statuses := [][]forebay.Status{nil, {forebay.StatusQueued}, {forebay.StatusFailed, forebay.StatusCancelled}, {forebay.StatusSucceeded, forebay.StatusRunning}, {forebay.StatusRunning, forebay.StatusQueued}}
		for range 300 {
			q := JobQuery{Tenant: []int64{0, tenants[0], tenants[1]}[random.IntN(3)], Statuses: statuses[random.IntN(len(statuses))], Task: pick("", "", "t"),
				CorrelationID: pick("", "", "c"), SessionID: pick("", "", "s"), Queue: []int64{0, 0, queues[1]}[random.IntN(3)], Limit: 1 + random.IntN(40)}
			if random.IntN(3) == 0 {
				q.Priority = &two
			}
			if random.IntN(3) == 0 {
				q.Metadata = map[string]string{"team": "red"}
			}
			if random.IntN(4) == 0 {
				q.WaitingFor = forebay.WaitSession
			}
			var want []int64
			for i, job := range whole.Jobs {
				if (q.Tenant == 0 || job.Tenant == q.Tenant) && (q.Statuses == nil || slices.Contains(q.Statuses, job.Status)) && (q.Task == "" || job.Task == q.Task) &&
					(q.CorrelationID == "" || job.CorrelationID == q.CorrelationID) && (q.SessionID == "" || job.SessionID == q.SessionID) && (q.Queue == 0 || job.Queue == q.Queue) &&
					(q.Priority == nil || job.Priority == two) && (q.Metadata == nil || teams[i] == "red") && (q.WaitingFor == "" || job.Waiting == forebay.WaitSession) {
					want = append(want, job.Seq)
				}
			}
			if got, pages := listed(t, s, q); !slices.Equal(got, want) || pages > len(want)/q.Limit+1 {
				t.Errorf("%+v: %d jobs in %d pages, want %d", q, len(got), pages, len(want))
			}
		}
		held, err := s.Jobs.Jobs(t.Context(), JobQuery{WaitingFor: forebay.WaitQuota, Limit: 500, Holds: func(*JobRow) forebay.WaitReason { return forebay.WaitQuota }})
		mustDo(t, err)
		for _, job := range held.Jobs {
			if !job.Ready {
				t.Errorf("%s is not ready", job.ID)
			}
		}
		if len(held.Jobs) == 0 {
			t.Error("no ready job is held")
		}
	})
}

// A list looks at so much and says how far it came, whatever others have piled up.
func TestJobListsAreBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		mine, theirs, no := tenantNamed(t, s, "mine"), tenantNamed(t, s, "theirs"), queueOf(t, s, "q")
		mail := queueOf(t, s, "mail")
		submitAll(t, s, NewJob{ID: "job_first", Tenant: mine, Queue: no, Task: "rare", Metadata: []byte(`{"a":"b"}`)})
		jobs := make([]NewJob, 1000)
		for i := range jobs {
			jobs[i] = NewJob{ID: fmt.Sprintf("job_%d", i), Tenant: mine, Queue: no, Task: "common", Metadata: []byte(`{"a":"c"}`)}
		}
		submitAll(t, s, jobs...)
		// Copies of a job, and messages of another tenant in a queue of messages, are made in SQL.
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			for _, statement := range []struct {
				sql    string
				values []int64
			}{
				{"UPDATE queues SET tenant = ? WHERE no = ?", []int64{theirs, mail}},
				{`INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, metadata, input_size, input)
SELECT 1000000 + a.seq * 10 + n.no, 'job_copy_' || (a.seq * 10 + n.no), a.tenant, a.queue, a.task, a.priority, a.max_attempts, a.created_at + 1000, a.metadata, 1, a.input
FROM jobs a, (SELECT 0 AS no UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6) n WHERE a.task = 'common'`, nil},
				{`INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at) SELECT seq, 'succeeded', 1, 1, 3, 1000 FROM jobs WHERE seq >= 1000000`, nil},
				{`INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant)
SELECT 2000000 + a.seq * 50 + n.no * 7 + o.no, ?1, 0, 0, 1, ?2 FROM jobs a,
(SELECT 0 AS no UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6) n,
(SELECT 0 AS no UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) o WHERE a.seq < 1000000`, []int64{int64(queue.SubqueueOf(mail, queue.SubqueueMain)), theirs}},
			} {
				st := t.Prep(statement.sql)
				for _, v := range statement.values {
					st = st.Int(v)
				}
				if err := st.Exec(); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		for name, q := range map[string]JobQuery{
			"a rare task": {Tenant: mine, Task: "rare"}, "rare metadata": {Tenant: mine, Metadata: map[string]string{"a": "b"}}, "of all tenants": {Metadata: map[string]string{"a": "b"}},
			"alive": {Tenant: mine, Statuses: []forebay.Status{forebay.StatusQueued}, Task: "rare"},
		} {
			q.Limit = 10
			first, err := s.Jobs.Jobs(t.Context(), q)
			mustDo(t, err)
			if len(first.Jobs) != 0 || first.Next == 0 || first.SearchedTo.IsZero() != (name == "alive") {
				t.Errorf("%s: the first page has %d jobs, next %d, searched to %v", name, len(first.Jobs), first.Next, first.SearchedTo)
			}
			if got, pages := listed(t, s, q); len(got) != 1 || pages < 2 || pages > 4 {
				t.Errorf("%s: %d jobs in %d pages", name, len(got), pages)
			}
		}
		q := JobQuery{Tenant: theirs, Metadata: map[string]string{"a": "b"}, Limit: 10}
		if got, pages := listed(t, s, q); len(got) != 0 || pages != 1 {
			t.Errorf("another tenant: %d jobs in %d pages", len(got), pages)
		}
		// A cursor of one tenant's list is only a number in another's.
		page, err := s.Jobs.Jobs(t.Context(), JobQuery{Tenant: theirs, Below: 1_500_000, Limit: 10})
		if err != nil || len(page.Jobs) != 0 || page.Next != 0 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// A list of those that are over reads more of them as long as its page is not full.
func TestListsOfThoseThatAreOver(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		mine, theirs, no := tenantNamed(t, s, "mine"), tenantNamed(t, s, "theirs"), queueOf(t, s, "q")
		of := []NewJob{{ID: "job_0", Tenant: mine}, {ID: "job_1", Tenant: mine}}
		for i := range 1500 {
			of = append(of, NewJob{ID: fmt.Sprint("job_", i+2), Tenant: theirs})
		}
		for i := range of {
			of[i].Queue, of[i].Task = no, "t"
		}
		submitAll(t, s, of...)
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, errors.Join(t.Prep("DELETE FROM messages").Exec(), t.Prep(`INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at)
SELECT seq, CASE id WHEN 'job_0' THEN 'failed' WHEN 'job_1' THEN 'cancelled' ELSE 'expired' END, 1, 1, 3, 1000 FROM jobs`).Exec())
		})
		mustDo(t, err)
		for _, c := range []struct {
			tenant   int64
			statuses []forebay.Status
			jobs     int
		}{
			{mine, []forebay.Status{forebay.StatusFailed}, 1}, {mine, []forebay.Status{forebay.StatusCancelled, forebay.StatusFailed}, 2}, {mine, []forebay.Status{forebay.StatusExpired}, 0},
			{theirs, []forebay.Status{forebay.StatusExpired}, 1500}, {0, []forebay.Status{forebay.StatusFailed, forebay.StatusExpired}, 1501},
		} {
			q := JobQuery{Tenant: c.tenant, Statuses: c.statuses, Limit: 100}
			if got, pages := listed(t, s, q); len(got) != c.jobs || pages != max(1, (c.jobs+99)/100) {
				t.Errorf("%v of %d: %d jobs in %d pages", c.statuses, c.tenant, len(got), pages)
			}
		}
	})
}

// Dead letters of several queues come in one order, page after page, and are counted.
func TestDeadLettersAcrossQueues(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		a, b := tenantNamed(t, s, "a"), tenantNamed(t, s, "b")
		var subqueues []queue.Subqueue
		reasons, tasks := map[string]int{}, []string{"t", "u"}
		var want []int64
		for i := range 3 {
			no := queueOf(t, s, fmt.Sprintf("q%d", i))
			subqueues = append(subqueues, queue.SubqueueOf(no, queue.SubqueueDeadLetter))
			for j := range 40 {
				tenant := a
				if j%3 == 0 {
					tenant = b
				}
				submitAll(t, s, NewJob{ID: fmt.Sprintf("job_%d_%d", i, j), Tenant: tenant, Queue: no, Task: tasks[j%2], CorrelationID: "c"})
				d := take(t, s, queue.SubqueueOf(no, queue.SubqueueMain), 1, time.Hour)[0]
				reason, class := fmt.Sprintf("r%d", j%5), forebay.ClassPermanent
				if j%4 == 0 {
					class = forebay.ClassTransient
				}
				mustDo(t, s.Jobs.DeadLetter(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: class, ErrorCode: "x"}, queue.SubqueueDeadLetter, reason))
				if tenant == a {
					reasons[reason+" "+d.Task]++
					want = append(want, d.Seq)
				}
			}
		}
		slices.Sort(want)
		slices.Reverse(want)
		read := func(q record.SetAsideQuery) (seqs []int64, pages int) {
			t.Helper()
			for {
				var page record.SetAsidePage
				mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) (err error) {
					page, err = record.SetAside(c, q)
					return err
				}))
				pages++
				for _, row := range page.Jobs {
					seqs = append(seqs, row.Seq)
				}
				if q.Below = page.Next; page.Next == 0 {
					return seqs, pages
				}
			}
		}
		for _, limit := range []int{1, 7, 79, 80, 500} {
			if got, pages := read(record.SetAsideQuery{Subqueues: subqueues, Tenant: a, Limit: limit}); !slices.Equal(got, want) || pages > len(want)/limit+1 {
				t.Errorf("%d at once: %d of %d in %d pages", limit, len(got), len(want), pages)
			}
		}
		if got, _ := read(record.SetAsideQuery{Subqueues: subqueues, Limit: 50}); len(got) != 120 || !slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) }) {
			t.Errorf("of all tenants: %v", got)
		}
		for name, f := range map[string]forebay.SetAsideFilter{"task": {Task: "u"}, "class": {ErrorClass: forebay.ClassTransient}, "reason": {Reason: "r1"}} {
			got, _ := read(record.SetAsideQuery{Subqueues: subqueues[:1], Limit: 50, Filter: f})
			rows, err := s.Jobs.DeadLetters(t.Context(), DeadLetterQuery{Subqueue: subqueues[0], Tenant: a, Filter: f, Limit: 500})
			mustDo(t, err)
			others, err := s.Jobs.DeadLetters(t.Context(), DeadLetterQuery{Subqueue: subqueues[0], Tenant: b, Filter: f, Limit: 500})
			mustDo(t, err)
			if len(got) == 0 || len(got) == 40 || len(got) != len(rows)+len(others) {
				t.Errorf("by %s: %d, by queue %d and %d", name, len(got), len(rows), len(others))
			}
		}
		var groups record.SetAsideGroups
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) (err error) {
			groups, err = record.CountSetAside(c, record.SetAsideQuery{Subqueues: subqueues, Tenant: a})
			return err
		}))
		if groups.Counted != len(want) || groups.Next != 0 || len(groups.Groups) != len(reasons) {
			t.Errorf("%+v", groups)
		}
		for _, g := range groups.Groups {
			if g.Count != reasons[g.Reason+" "+g.Task] || g.Newest.Before(g.Oldest) || g.Example == "" {
				t.Errorf("%+v, want %d", g, reasons[g.Reason+" "+g.Task])
			}
		}
	})
}

// A search of many dead letters looks up in other tables only what its filter needs.
func TestDeadLettersAreLookedUpAsAsked(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		no := queueOf(t, s, "q")
		dead := queue.SubqueueOf(no, queue.SubqueueDeadLetter)
		created := s.Jobs.Now()
		for i := range 3 {
			submitAll(t, s, NewJob{ID: fmt.Sprint("job_", i), Tenant: tenantNamed(t, s, "a"), Queue: no, Task: "t", CorrelationID: fmt.Sprint("c", i)})
			d := take(t, s, queue.SubqueueOf(no, queue.SubqueueMain), 1, time.Hour)[0]
			mustDo(t, s.Jobs.DeadLetter(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "x"}, queue.SubqueueDeadLetter, "r"))
		}
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			for asked := range 5 { // 0: for nothing
				st := c.Prep(record.SQLSetAside).Int(int64(dead)).Int(1 << 62).Int(10)
				for flag := 1; flag < 5; flag++ {
					st = st.Int(driver.BoolInt(flag == asked))
				}
				if err := st.Each(func(r driver.Row) error {
					for flag := 1; flag < 5; flag++ {
						if r.IsNull(3+flag) == (flag == asked) {
							t.Errorf("asked for %d: column %d is null: %t", asked, 3+flag, r.IsNull(3+flag))
						}
					}
					return nil
				}); err != nil {
					return err
				}
			}
			for name, f := range map[string]forebay.SetAsideFilter{"id": {JobIDs: []string{"job_1"}}, "correlation": {CorrelationID: "c1"}} {
				page, err := record.SetAside(c, record.SetAsideQuery{Subqueues: []queue.Subqueue{dead}, Filter: f, Limit: 50})
				if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != "job_1" || page.SearchedTo.Before(created.Truncate(time.Millisecond)) {
					t.Errorf("by %s: %+v, %v", name, page, err)
				}
			}
			groups, err := record.CountSetAside(c, record.SetAsideQuery{Subqueues: []queue.Subqueue{dead}})
			if err != nil || len(groups.Groups) != 1 || groups.Groups[0].Example != "job_2" || groups.Groups[0].Count != 3 || groups.Groups[0].Task != "t" {
				t.Errorf("%+v, %v", groups, err)
			}
			return nil
		}))
	})
}
