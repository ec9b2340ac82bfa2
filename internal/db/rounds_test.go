package db

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// Operations run together unless one changes what the other names, or does not say all that it
// changes. What they come to is then as if they had run one after the other.
func TestRounds(t *testing.T) {
	t.Parallel()
	row := func(no int64) driver.RowName { return driver.RowName{Of: "rows", No: no} }
	apart := Op{Local: true, Interleaves: true}
	changes := func(rows ...int64) Op {
		o := apart
		for _, no := range rows {
			o.Touches = append(o.Touches, row(no))
		}
		return o
	}
	asks := func(no int64) Op {
		o := apart
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{driver.NewPrefetch("SELECT 1", row(no)).Int(no)} }
		return o
	}
	reads := func(o Op, no int64) Op {
		q := driver.NewPrefetch("SELECT 2", row(no)).Int(no)
		q.Shared = true
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{q} }
		return o
	}
	for name, c := range map[string]struct {
		ops  []Op
		want string // the operations of each round
	}{
		"different rows":                    {[]Op{changes(1), asks(2), changes(3, 4)}, "[[0 1 2]]"},
		"the same row":                      {[]Op{changes(1), asks(1), changes(1)}, "[[0] [1] [2]]"},
		"one of many rows":                  {[]Op{changes(1, 2), changes(2, 3), changes(3), changes(4)}, "[[0 3] [1] [2]]"},
		"readers":                           {[]Op{reads(apart, 1), reads(apart, 1), reads(apart, 2)}, "[[0 1 2]]"},
		"readers and writers":               {[]Op{reads(apart, 1), changes(1), reads(apart, 1), reads(apart, 1), changes(1)}, "[[0] [1] [2 3] [4]]"},
		"each reads what the other changes": {[]Op{reads(changes(1), 2), reads(changes(2), 1)}, "[[0] [1]]"},
		"alone":                             {[]Op{changes(1), {Local: true}, changes(2)}, "[[0] [1] [2]]"},
		"not local":                         {[]Op{changes(1), {Interleaves: true}, changes(2)}, "[[0] [1] [2]]"},
		"of another stage":                  {[]Op{changes(1), {Stage: StageSubmit, Local: true}, changes(2)}, "[[0 2]]"},
	} {
		var batch []Operation
		for _, o := range c.ops {
			o.ask()
			batch = append(batch, &Request[int]{Op: o})
		}
		var got [][]int
		for _, ops := range inRounds(batch, StageSettle) {
			var numbers []int
			for _, op := range ops {
				numbers = append(numbers, slices.Index(batch, op))
			}
			got = append(got, numbers)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}
