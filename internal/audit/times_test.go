package audit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

// timesBegin is before the first entry of a log that timed makes.
var timesBegin = time.Date(2030, 1, 2, 14, 0, 0, 0, time.UTC)

// timed makes a log of so many entries, 20 seconds apart, and returns it, newest first. Now and
// then the clock steps back, by 20 seconds at most. Every tenth entry is an act.
func timed(t *testing.T, e outside, entries int) (s *stores, all []forebay.AuditEntry) {
	s = e.Open()
	for i := range entries {
		a := Act{Tenant: fmt.Sprint("t", i%2), Actor: forebay.ServerActor, Action: string(forebay.EventDeadLettered)}
		if i%10 == 5 {
			a.Actor, a.Action = "key_1", "purge"
		}
		if err := s.Audit.Record(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	sql := fmt.Sprintf("UPDATE audit SET at = %d + no * 20000 - (no %% 3) * 30000", timesBegin.UnixMilli())
	if err := e.Tamper(e.Dialect.Replace("TRIGGERS OFF; " + sql)); err != nil {
		t.Fatal(err)
	}
	all, next, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, entries)
	if err != nil || len(all) != entries || next != 0 {
		t.Fatalf("%d entries, next %d (%v)", len(all), next, err)
	}
	return s, all
}

// listed reads all pages of a list. No page may have more entries than are asked for.
func listed(t *testing.T, s *stores, f forebay.AuditFilter, below int64, limit, look int) (numbers []int64, pages int) {
	t.Helper()
	for {
		pages++
		entries, next, err := s.Audit.auditEntries(t.Context(), f, below, limit, look)
		if err != nil || len(entries) > min(limit, look) {
			t.Fatalf("%+v: %d entries (%v)", f, len(entries), err)
		}
		for _, e := range entries {
			numbers = append(numbers, e.Number)
		}
		if next == 0 {
			return numbers, pages
		}
		if below != 0 && next >= below {
			t.Fatalf("%+v: from %d to %d", f, below, next)
		}
		below = next
	}
}

// A list by time has all entries of that time and no other, whatever else the filter selects and
// however its pages are cut. It reads these entries and few around them.
func TestAuditByTime(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, testAuditByTime)
}

func testAuditByTime(t *testing.T, e outside) {
	const entries, look = 150, 10
	s, all := timed(t, e, entries)
	at := func(number int) *time.Time { return &all[entries-number].At }
	moved := func(number int, by time.Duration) *time.Time {
		moved := at(number).Add(by)
		return &moved
	}
	ever, never := timesBegin.Add(-time.Hour), timesBegin.Add(24*time.Hour)
	for name, times := range map[string]struct{ after, before *time.Time }{
		"from the beginning":   {&ever, nil},
		"to the end":           {nil, &never},
		"of all time":          {&ever, &never},
		"later than all":       {&never, nil},
		"earlier than all":     {nil, &ever},
		"from an entry":        {at(71), nil},
		"after an entry":       {moved(71, time.Millisecond), nil},
		"before an entry":      {nil, at(71)},
		"until an entry":       {nil, moved(71, time.Millisecond)},
		"from a step back":     {at(74), at(77)},
		"by a hair":            {at(60), moved(60, time.Millisecond)},
		"between entries":      {moved(60, time.Millisecond), moved(60, 2*time.Millisecond)},
		"no time at all":       {at(60), at(60)},
		"the wrong way round":  {at(90), at(60)},
		"a part in the middle": {at(60), at(90)},
	} {
		for _, f := range []forebay.AuditFilter{
			{}, {Tenant: "t0"}, {Tenant: "nobody"}, {Actor: "key_1"}, {Actor: "nobody"}, {Action: "purge"}, {Actor: forebay.ServerActor},
			{Action: string(forebay.EventDeadLettered), Tenant: "t1"}, {Actor: "key_1", Action: "purge", Tenant: "t1"}, {Action: "nothing"},
		} {
			var want []int64
			within := 0
			for _, e := range all {
				if times.after != nil && e.At.Before(*times.after) || times.before != nil && !e.At.Before(*times.before) {
					continue
				}
				within++
				if cmp.Or(f.Tenant, e.Tenant) == e.Tenant && cmp.Or(f.Actor, e.Actor) == e.Actor && cmp.Or(f.Action, e.Action) == e.Action {
					want = append(want, e.Number)
				}
			}
			f.CreatedAfter, f.CreatedBefore = times.after, times.before
			for _, limit := range []int{1, 4, look + 5} {
				got, pages := listed(t, s, f, 0, limit, look)
				if !slices.Equal(got, want) {
					t.Errorf("%s, %+v by %d: %v; want %v", name, f, limit, got, want)
				}
				// A clock may be a minute behind or ahead: that is six entries or so at either side.
				if most := len(want)/limit + (within+16)/look + 1; pages > most {
					t.Errorf("%s, %+v by %d: %d pages for %d of %d entries; want %d at most", name, f, limit, pages, len(want), within, most)
				}
			}
			// A cursor goes on below its entry, and never above the time.
			for _, below := range []int64{1, 40, 75, entries + 1} {
				got, _ := listed(t, s, f, below, 4, look)
				if rest := slices.DeleteFunc(slices.Clone(want), func(no int64) bool { return no >= below }); !slices.Equal(got, rest) {
					t.Errorf("%s, %+v below %d: %v; want %v", name, f, below, got, rest)
				}
			}
		}
	}
}

// A list by time does not look at entries long before it. One that was written there by a clock
// far ahead is not found by it, only without a time.
func TestAuditByTimeReadsOnlyThatPart(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s, all := timed(t, e, 150)
		after, before := all[150-94].At, all[150-99].At
		if err := e.Tamper(fmt.Sprintf("UPDATE audit SET at = %d WHERE no = 86", after.UnixMilli())); err != nil {
			t.Fatal(err)
		}
		for _, f := range []forebay.AuditFilter{{}, {Tenant: "t1"}, {Actor: "key_1"}} {
			for _, look := range []int{2, 100} {
				if got, _ := listed(t, s, f, 0, 100, look); !slices.Contains(got, 86) {
					t.Fatalf("%+v: %v has no entry 86", f, got)
				}
				f.CreatedAfter, f.CreatedBefore = &after, &before
				if got, _ := listed(t, s, f, 0, 100, look); len(got) == 0 || slices.Contains(got, 86) {
					t.Errorf("%+v, with a look at %d: %v", f, look, got)
				}
				f.CreatedAfter, f.CreatedBefore = nil, nil
			}
		}
	})
}

// A time that no entry can have is refused by the name of its field.
func TestAuditRefusesTimes(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		for _, at := range []time.Time{timesBegin.AddDate(-200, 0, 0), timesBegin.AddDate(8000, 0, 0)} {
			for field, f := range map[string]forebay.AuditFilter{"created_after": {CreatedAfter: &at}, "created_before": {CreatedBefore: &at}} {
				_, err := s.Audit.Page(t.Context(), f, 0, "")
				if refused := (*forebay.Error)(nil); !errors.As(err, &refused) || refused.Code != forebay.CodeInvalidRequest || refused.Field != field {
					t.Errorf("%s: %v", field, err)
				}
			}
		}
		page, err := s.Audit.Page(t.Context(), forebay.AuditFilter{CreatedAfter: &timesBegin, CreatedBefore: &timesBegin}, 0, "")
		if err != nil || len(page.Items) != 0 || page.NextCursor != "" {
			t.Errorf("of an empty log: %+v (%v)", page, err)
		}
	})
}
