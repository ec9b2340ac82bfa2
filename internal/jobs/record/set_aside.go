package record

import (
	"cmp"
	"maps"
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
	byTask    bool  // the task is asked for
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

// SQLSetAside finds jobs along the index of a subqueue, whoever's they are. What is in other
// tables is looked up only if it is asked for: a page counts thousands of jobs.
const SQLSetAside = `
SELECT m.seq, m.tenant, m.reason, m.visible_at, CASE WHEN ?4 <> 0 THEN (SELECT j.task FROM jobs j WHERE j.seq = m.seq) END,
  CASE WHEN ?5 <> 0 THEN (SELECT j.id FROM jobs j WHERE j.seq = m.seq) END,
  CASE WHEN ?6 <> 0 THEN (SELECT j.correlation_id FROM jobs j WHERE j.seq = m.seq) END,
  CASE WHEN ?7 <> 0 THEN (SELECT o.error_class FROM outcomes o WHERE o.seq = m.seq) END
FROM messages m WHERE m.subqueue = ?1 AND m.subqueue % 4 >= 2 AND m.seq < ?2 ORDER BY m.seq DESC LIMIT ?3 + 0`

// SQLSetAsideOne reads the few jobs that stand for others.
const (
	SQLSetAsideOne   = "SELECT x.no, j.id, j.created_at"
	SQLOfSetAsideOne = " JOIN jobs j ON j.seq = x.no"
)

// SQLSetAsideJobs reads the jobs that were found.
const (
	SQLSetAsideJobs   = "SELECT x.no, " + setAsideColumns + "NULL" + setAsideMore + ", j.tenant, m.subqueue"
	SQLOfSetAsideJobs = " JOIN messages m ON m.seq = x.no JOIN jobs j ON j.seq = x.no LEFT JOIN outcomes o ON o.seq = x.no"
)

// setAside is what SQLSetAside finds.
type setAside struct {
	seq, tenant, at                      int64
	reason, task, id, correlation, class string // the latter four only as asked for
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
	groups, examples := map[name]*SetAsideGroup{}, map[int64]*SetAsideGroup{}
	q.byTask = true
	counts.Next, counts.SearchedTo, err = q.walk(c, func(row setAside) bool {
		counts.Counted++
		at := driver.FromMillis(row.at)
		g := groups[name{row.reason, row.task}]
		switch {
		case g == nil && len(groups) == maxGroups:
			counts.Other++
			return true
		case g == nil:
			g = &SetAsideGroup{Reason: row.reason, Task: row.task, Newest: at, Oldest: at}
			groups[name{row.reason, row.task}], examples[row.seq] = g, g
		case at.After(g.Newest):
			g.Newest = at
		case at.Before(g.Oldest):
			g.Oldest = at
		}
		g.Count++
		return true
	})
	if err != nil {
		return counts, err
	}
	err = driver.EachOf(c, SQLSetAsideOne, SQLOfSetAsideOne, slices.Sorted(maps.Keys(examples)), func(r driver.Row) error {
		examples[r.Int(0)].Example = r.Text(1)
		return nil
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
	step, last := setAsideStep, int64(0)
search:
	for looked := 0; looked < maxWindow; step = min(2*step, maxWindow-looked) {
		rows, floor, err := q.read(c, below, step)
		if err != nil {
			return 0, searched, err
		}
		for i, row := range rows {
			if q.Tenant == 0 || q.Tenant == row.tenant { // nobody learns when others made jobs
				last = row.seq
			}
			if q.selects(row) && !f(row) {
				if next = row.seq; i == len(rows)-1 && floor == 0 {
					next = 0
				}
				break search
			}
		}
		next, below = floor, floor
		if looked += len(rows); floor == 0 {
			break
		}
	}
	if last == 0 {
		return next, searched, nil
	}
	err = driver.EachOf(c, SQLSetAsideOne, SQLOfSetAsideOne, []int64{last}, func(r driver.Row) error {
		searched = driver.FromMillis(r.Int(2))
		return nil
	})
	return next, searched, err
}

// read returns the newest jobs below a number, about as many as most, newest first. floor is the
// lowest number that was looked at in each subqueue; 0: nothing is below.
func (q *SetAsideQuery) read(c driver.Conn, below int64, most int) (rows []setAside, floor int64, err error) {
	each := max(most/max(len(q.Subqueues), 1), 1)
	f := &q.Filter
	for _, subqueue := range q.Subqueues {
		read, lowest := 0, int64(0)
		st := c.Prep(SQLSetAside).Int(int64(subqueue)).Int(below).Int(int64(each))
		for _, asked := range []bool{q.byTask || f.Task != "", len(f.JobIDs) > 0, f.CorrelationID != "", f.ErrorClass != ""} {
			st = st.Int(driver.BoolInt(asked))
		}
		err := st.Each(func(r driver.Row) error {
			read++
			lowest = r.Int(0)
			rows = append(rows, setAside{seq: lowest, tenant: r.Int(1), reason: r.Text(2), at: r.Int(3), task: r.Text(4), id: r.Text(5), correlation: r.Text(6), class: r.Text(7)})
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
