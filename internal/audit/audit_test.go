package audit

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

// audited makes a store whose log has so many entries.
func audited(t *testing.T, e outside, entries int) *stores {
	t.Helper()
	s := e.Open()
	// At the same time, so that several are written in one transaction.
	var wg sync.WaitGroup
	for i := range entries {
		wg.Go(func() {
			if err := s.Audit.Record(t.Context(), Act{Actor: "key_1", Action: "pause", Target: fmt.Sprint("q", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return s
}

func verifyAll(t *testing.T, s *stores, from forebay.AuditHead, chunk int) (v forebay.AuditVerification) {
	t.Helper()
	for range 100 {
		var err error
		if v, err = s.Audit.Verify(t.Context(), from, chunk); err != nil {
			t.Fatal(err)
		}
		if !v.Intact || v.Done {
			return v
		}
		if v.Checked != int64(chunk) {
			t.Fatalf("a part of %d entries checked %d", chunk, v.Checked)
		}
		if from, err = forebay.ParseAuditHead(v.Head); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no end")
	return v
}

func TestAuditChain(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, testAuditChain)
}

func testAuditChain(t *testing.T, e outside) {
	empty := e.Open()
	if v := verifyAll(t, empty, forebay.AuditHead{}, 10); !v.Intact || v.Checked != 0 || v.Head != (forebay.AuditHead{}).String() {
		t.Errorf("an empty log: %+v", v)
	}
	if err := empty.DB.Close(); err != nil {
		t.Fatal(err)
	}
	s := audited(t, e, 25)
	entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 100)
	if err != nil || len(entries) != 25 {
		t.Fatalf("%d entries (%v)", len(entries), err)
	}
	slices.Reverse(entries)
	previous := forebay.NoAuditHash
	for i, e := range entries {
		if e.Number != int64(i+1) || e.PreviousHash != previous || e.Hash != e.ComputeHash() || e.At.IsZero() || e.Actor != "key_1" {
			t.Errorf("entry %d: %+v", i+1, e)
		}
		previous = e.Hash
	}
	for _, chunk := range []int{2, 5, 24, 25, 26, 1000} {
		if v := verifyAll(t, s, forebay.AuditHead{}, chunk); !v.Intact || v.Head != "25:"+previous {
			t.Errorf("in parts of %d: %+v", chunk, v)
		}
	}
	if v := verifyAll(t, s, forebay.AuditHead{Number: 7, Hash: entries[6].Hash}, 5); !v.Intact || v.Head != "25:"+previous {
		t.Errorf("from a head: %+v", v)
	}
	// What a filter and a page leave out is still there.
	got, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{Actor: "key_1", Action: "pause"}, 5, 2)
	if err != nil || len(got) != 2 || got[0].Number != 4 {
		t.Errorf("a page: %+v (%v)", got, err)
	}
	if got, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{Tenant: "acme"}, 0, 2); err != nil || len(got) != 0 {
		t.Errorf("of a tenant: %+v (%v)", got, err)
	}
}

// What a filter selects is found page by page, whoever made it. No page reads more entries than
// it may. What operators did is found however many events of jobs there are.
func TestAuditFilters(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, testAuditFilters)
}

func testAuditFilters(t *testing.T, e outside) {
	const log, look = 120, 10
	s := e.Open()
	var all []forebay.AuditEntry // newest first
	for i := range log {
		a := Act{Tenant: fmt.Sprint("t", i%3), Actor: forebay.ServerActor, Action: string(forebay.JobEventTypes[i%5]), Target: fmt.Sprint(i)}
		switch {
		case i%17 == 5:
			a.Actor, a.Action = fmt.Sprint("key_", i%2), "purge"
		case i%29 == 1: // a budget's, and what is called as an event is
			a.Action = "budget_warning"
		case i == 60:
			a.Actor = "key_0"
		}
		if err := s.Audit.Record(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		all = slices.Insert(all, 0, forebay.AuditEntry{Number: int64(i + 1), Tenant: a.Tenant, Actor: a.Actor, Action: a.Action})
	}
	for _, f := range auditFilters() {
		var want []int64
		for _, e := range all {
			if (f.Tenant == "" || f.Tenant == e.Tenant) && (f.Actor == "" || f.Actor == e.Actor) && (f.Action == "" || f.Action == e.Action) {
				want = append(want, e.Number)
			}
		}
		for _, limit := range []int{1, 4, look + 5} {
			got, pages := listed(t, s, f, 0, limit, look)
			if !slices.Equal(got, want) {
				t.Errorf("%+v by %d: %v; want %v", f, limit, got, want)
			}
			if most := len(want)/limit + log/look + 1; pages > most {
				t.Errorf("%+v by %d: %d pages; want %d at most", f, limit, pages, most)
			}
			if acts := f.Actor == "key_1" || f.Actor == "nobody" || f.Action == "purge"; acts && pages > len(want)/limit+2 {
				t.Errorf("%+v by %d: %d pages for %d acts", f, limit, pages, len(want))
			}
			if f.Actor == "nobody" && pages != 2 { // there are more acts than one looks at, and less than twice as many
				t.Errorf("%+v by %d: all acts were looked at for %d pages", f, limit, pages)
			}
		}
	}
}

// auditFilters are all that select by these.
func auditFilters() (all []forebay.AuditFilter) {
	for _, tenant := range []string{"", "t0", "nobody"} {
		for _, actor := range []string{"", forebay.ServerActor, "key_0", "key_1", "nobody"} {
			for _, action := range []string{"", "purge", "budget_warning", string(forebay.EventAccepted), string(forebay.EventRedriven), "nothing"} {
				all = append(all, forebay.AuditFilter{Tenant: tenant, Actor: actor, Action: action})
			}
		}
	}
	return all
}

// Where the end of the log was cut off operators can go on, and what stood there is not taken
// for what they do now.
func TestAuditOfActsAfterACut(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := audited(t, e, 4)
		if err := e.Tamper(e.Dialect.Replace("TRIGGERS OFF; DELETE FROM audit WHERE no > 2")); err != nil {
			t.Fatal(err)
		}
		if err := s.Audit.Record(t.Context(), Act{Actor: "key_2", Action: "purge"}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 10); err != nil || len(got) != 3 || got[0].Actor != "key_2" {
			t.Errorf("the log is %+v (%v)", got, err)
		}
		if got, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{Actor: "key_1"}, 0, 10); err != nil || len(got) != 2 {
			t.Errorf("found %+v (%v)", got, err)
		}
	})
}

// The database itself refuses everything but the next entry of the chain.
func TestAuditIsAppendOnly(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, testAuditIsAppendOnly)
}

func testAuditIsAppendOnly(t *testing.T, e outside) {
	s := audited(t, e, 3)
	const columns = "INSERT INTO audit (no, at, tenant, actor, action, target, detail, prev, hash) "
	for name, sql := range map[string]string{
		"update":              "UPDATE audit SET detail = 'x' WHERE no = 2",
		"delete":              "DELETE FROM audit WHERE no = 3",
		"delete all":          "DELETE FROM audit",
		"the same again":      "INSERT INTO audit SELECT * FROM audit WHERE no = 2",
		"a gap":               columns + "SELECT 5, 0, '', '', '', '', '', hash, ZEROS FROM audit WHERE no = 3",
		"another place":       columns + "SELECT 4, 0, '', '', '', '', '', hash, ZEROS FROM audit WHERE no = 2",
		"no number":           columns + "SELECT NULL, 0, '', '', '', '', '', hash, ZEROS FROM audit WHERE no = 3",
		"a hash too short":    columns + "SELECT 4, 0, '', '', '', '', '', hash, SHORT FROM audit WHERE no = 3",
		"upsert":              columns + "SELECT no, at, tenant, actor, action, target, 'x', prev, hash FROM audit WHERE no = 2 ON CONFLICT (no) DO UPDATE SET detail = 'x'",
		"before the first":    columns + "VALUES (0, 0, '', '', '', '', '', ZEROS, ZEROS)",
		"without a link":      columns + "VALUES (4, 0, '', '', '', '', '', ZEROS, ZEROS)",
		"a new last, renamed": "UPDATE audit SET no = 9 WHERE no = 3",
		"an act forgotten":    "DELETE FROM audit_acts WHERE no = 2",
		"an act moved":        "UPDATE audit_acts SET actor = 'key_9' WHERE no = 3",
	} {
		if err := e.Tamper(e.Dialect.Replace(sql)); err == nil || !strings.Contains(err.Error(), "audit log") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e.Name == "sqlite" {
		if err := e.Tamper("INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE no = 2"); err == nil {
			t.Error("replaced an entry")
		}
	} else if err := e.Tamper("TRUNCATE audit"); err == nil {
		t.Error("emptied the log")
	}
	if v := verifyAll(t, s, forebay.AuditHead{}, 10); !v.Intact || v.Checked != 3 {
		t.Errorf("got %+v", v)
	}
}

// Whoever gets round the triggers is found out, and the first broken entry is named.
func TestAuditTampering(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for name, c := range map[string]struct {
		sql    string
		number int64
		reason string
	}{
		"a field":         {"UPDATE audit SET detail = 'x' WHERE no = 7", 7, "what it says"},
		"a time":          {"UPDATE audit SET at = at + 1 WHERE no = 1", 1, "what it says"},
		"a moved border":  {"UPDATE audit SET action = action || substr(target, 1, 1), target = substr(target, 2) WHERE no = 5", 5, "what it says"},
		"a hash":          {"UPDATE audit SET hash = ZEROS WHERE no = 6", 6, "what it says"},
		"one removed":     {"DELETE FROM audit WHERE no = 4", 4, "missing"},
		"the first ones":  {"DELETE FROM audit WHERE no < 4", 1, "missing"},
		"closed up":       {"DELETE FROM audit WHERE no = 4; UPDATE audit SET no = no - 1 WHERE no > 4", 4, "follow"},
		"a cut":           {"DELETE FROM audit WHERE no > 11", 12, "missing"}, // seen by the head
		"a cut, and more": {"DELETE FROM audit WHERE no = 12; INSERT INTO audit SELECT 12, 0, '', '', '', '', '', prev, hash FROM audit WHERE no = 11", 12, "head"},
	} {
		test := func(t *testing.T, e outside) {
			s := audited(t, e, 12)
			head, err := forebay.ParseAuditHead(verifyAll(t, s, forebay.AuditHead{}, 5).Head)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Tamper(e.Dialect.Replace("TRIGGERS OFF; " + c.sql)); err != nil {
				t.Fatal(err)
			}
			from := forebay.AuditHead{}
			if strings.HasPrefix(name, "a cut") {
				from = head
			}
			for _, chunk := range []int{2, 3, 100} {
				v := verifyAll(t, s, from, chunk)
				if v.Intact || v.Done || v.Broken == nil || v.Broken.Number != c.number || !strings.Contains(v.Broken.Reason, c.reason) {
					t.Errorf("in parts of %d: %+v %+v", chunk, v, v.Broken)
				}
			}
		}
		t.Run(name, func(t *testing.T) { fixture.FromOutside(t, test) })
	}
}
