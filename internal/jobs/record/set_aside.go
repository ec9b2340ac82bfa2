package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// SetAsideQuery selects jobs of several dead-letter or quarantine subqueues, newest first.
type SetAsideQuery struct {
	Subqueues []queue.Subqueue
	Tenant    int64 // 0: all tenants
	Filter    forebay.SetAsideFilter
	Below     int64 // only jobs with a lower sequence number; 0: from the newest
	Limit     int   // of a list
}

// SetAsidePage is what a list found. There may be more jobs below Next, even if there are fewer
// than the limit. A Next of 0 is the end.
type SetAsidePage struct {
	Jobs       []DeadLetter
	Next       int64
	SearchedTo time.Time // when the last job of the tenant was made that was looked at; zero: none was
}

// SetAsideGroup counts the jobs that were set aside for one reason in one task.
type SetAsideGroup struct {
	Reason, Task   string
	Count          int
	Newest, Oldest time.Time // when they were set aside
	Example        string    // id of the job with the highest number
}

// SetAsideGroups counts by reason and task, the largest first.
type SetAsideGroups struct {
	Groups     []SetAsideGroup
	Counted    int
	Other      int       // of these, in groups beyond the limit
	Next       int64     // jobs below were not looked at; 0: all were
	SearchedTo time.Time // as in SetAsidePage
}

// SQLSetAside finds jobs along the index of a subqueue, whoever's they are.
const SQLSetAside = `
SELECT m.seq, m.tenant, m.reason, m.visible_at, (SELECT j.id FROM jobs j WHERE j.seq = m.seq), (SELECT j.task FROM jobs j WHERE j.seq = m.seq),
  (SELECT j.correlation_id FROM jobs j WHERE j.seq = m.seq), (SELECT o.error_class FROM outcomes o WHERE o.seq = m.seq),
  (SELECT j.created_at FROM jobs j WHERE j.seq = m.seq)
FROM messages m WHERE m.subqueue = ?1 AND m.subqueue % 4 >= 2 AND m.seq < ?2 ORDER BY m.seq DESC LIMIT ?3 + 0`

// SQLSetAsideJobs reads the jobs that were found.
const (
	SQLSetAsideJobs   = "SELECT x.no, " + setAsideColumns + "NULL" + setAsideMore + ", j.tenant, m.subqueue"
	SQLOfSetAsideJobs = " JOIN messages m ON m.seq = x.no JOIN jobs j ON j.seq = x.no LEFT JOIN outcomes o ON o.seq = x.no"
)

// setAside is what SQLSetAside finds.
type setAside struct {
	seq, tenant, at, created             int64
	reason, id, task, correlation, class string
}

// setAsideStep is how many jobs of all subqueues together are looked at first.
const setAsideStep = 1000

// maxGroups bounds the groups that are told apart.
const maxGroups = 500

// SetAside returns the page that the query selects.
func SetAside(c driver.Conn, q SetAsideQuery) (page SetAsidePage, err error) {
	var numbers []int64
	page.Next, page.SearchedTo, err = q.walk(c, func(row setAside) bool {
		numbers = append(numbers, row.seq)
		return len(numbers) < q.Limit
	})
	if err != nil {
		return page, err
	}
	err = driver.EachOf(c, SQLSetAsideJobs, SQLOfSetAsideJobs, numbers, func(r driver.Row) error {
		// It may have been redriven since it was found.
		if row := readDeadLetter(r); row.Subqueue.Kind() >= queue.SubqueueDeadLetter {
			page.Jobs = append(page.Jobs, row)
		}
		return nil
	})
	slices.SortFunc(page.Jobs, func(a, b DeadLetter) int { return cmp.Compare(b.Seq, a.Seq) })
	return page, err
}

// CountSetAside counts the jobs that the query selects by reason and task.
func CountSetAside(c driver.Conn, q SetAsideQuery) (counts SetAsideGroups, err error) {
	type name struct{ reason, task string }
	groups := map[name]*SetAsideGroup{}
	counts.Next, counts.SearchedTo, err = q.walk(c, func(row setAside) bool {
		counts.Counted++
		at := driver.FromMillis(row.at)
		g := groups[name{row.reason, row.task}]
		switch {
		case g == nil && len(groups) == maxGroups:
			counts.Other++
			return true
		case g == nil:
			g = &SetAsideGroup{Reason: row.reason, Task: row.task, Newest: at, Oldest: at, Example: row.id}
			groups[name{row.reason, row.task}] = g
		case at.After(g.Newest):
			g.Newest = at
		case at.Before(g.Oldest):
			g.Oldest = at
		}
		g.Count++
		return true
	})
	for _, g := range groups {
		counts.Groups = append(counts.Groups, *g)
	}
	slices.SortFunc(counts.Groups, func(a, b SetAsideGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Task, b.Task))
	})
	return counts, err
}

// walk calls f with the jobs that the query selects, newest first, until it returns false. It
// looks at maxWindow jobs at most. next is the number to go on below; 0: there is nothing more.
func (q *SetAsideQuery) walk(c driver.Conn, f func(setAside) bool) (next int64, searched time.Time, err error) {
	below := q.Below
	if below == 0 {
		below = 1 << 62
	}
	step := setAsideStep
	for looked := 0; looked < maxWindow; step = min(2*step, maxWindow-looked) {
		rows, floor, err := q.read(c, below, step)
		if err != nil {
			return 0, searched, err
		}
		for i, row := range rows {
			if q.Tenant == 0 || q.Tenant == row.tenant { // nobody learns when others made jobs
				searched = driver.FromMillis(row.created)
			}
			if q.selects(row) && !f(row) {
				if i == len(rows)-1 && floor == 0 {
					return 0, searched, nil
				}
				return row.seq, searched, nil
			}
		}
		if looked += len(rows); floor == 0 {
			return 0, searched, nil
		}
		next, below = floor, floor
	}
	return next, searched, nil
}

// read returns the newest jobs below a number, about as many as most, newest first. floor is the
// lowest number that was looked at in each subqueue; 0: nothing is below.
func (q *SetAsideQuery) read(c driver.Conn, below int64, most int) (rows []setAside, floor int64, err error) {
	each := max(most/max(len(q.Subqueues), 1), 1)
	for _, subqueue := range q.Subqueues {
		read, lowest := 0, int64(0)
		err := c.Prep(SQLSetAside).Int(int64(subqueue)).Int(below).Int(int64(each)).Each(func(r driver.Row) error {
			read++
			lowest = r.Int(0)
			rows = append(rows, setAside{seq: lowest, tenant: r.Int(1), reason: r.Text(2), at: r.Int(3), id: r.Text(4), task: r.Text(5), correlation: r.Text(6), class: r.Text(7), created: r.Int(8)})
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		if read == each {
			floor = max(floor, lowest)
		}
	}
	slices.SortFunc(rows, func(a, b setAside) int { return cmp.Compare(b.seq, a.seq) })
	// Below the floor a subqueue may have jobs that were not read.
	if end := slices.IndexFunc(rows, func(row setAside) bool { return row.seq < floor }); end >= 0 {
		rows = rows[:end]
	}
	return rows, floor, nil
}

func (q *SetAsideQuery) selects(row setAside) bool {
	f := &q.Filter
	return (q.Tenant == 0 || row.tenant == q.Tenant) && (f.Task == "" || row.task == f.Task) && (f.Reason == "" || row.reason == f.Reason) &&
		(f.ErrorClass == "" || row.class == string(f.ErrorClass)) && (f.CorrelationID == "" || row.correlation == f.CorrelationID) &&
		(f.After == nil || row.at >= f.After.UnixMilli()) && (f.Before == nil || row.at < f.Before.UnixMilli()) &&
		(len(f.JobIDs) == 0 || slices.Contains(f.JobIDs, row.id))
}
