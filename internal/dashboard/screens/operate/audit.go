package operate

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const auditPath = "/audit"

type auditData struct {
	Entries           []auditEntry
	Next              string
	Of, Actor, Action string
	After, Before     time.Time // zero: no bound
}

// AfterField is what the field of the form shows.
func (d auditData) AfterField() string { return exactField(d.After) }

// BeforeField is what the field of the form shows.
func (d auditData) BeforeField() string { return exactField(d.Before) }

type auditEntry struct{ forebay.AuditEntry }

// maxDetail is how many bytes of an entry's detail the list shows.
const maxDetail = 300

// Short is the beginning of the detail.
func (e auditEntry) Short() string {
	if len(e.Detail) <= maxDetail {
		return kit.Clean(e.Detail)
	}
	end := maxDetail
	for !utf8.RuneStart(e.Detail[end]) {
		end--
	}
	return kit.Clean(e.Detail[:end]) + "…"
}

// listAudit answers GET /audit. Its filter by tenant is of, since tenant is where the page is.
func listAudit(r *kit.Request) error {
	data := auditData{Of: r.Query("of"), Actor: r.Query("actor"), Action: r.Query("action")}
	var err error
	if data.After, err = timeOf(r, "created_after"); err != nil {
		return err
	}
	if data.Before, err = timeOf(r, "created_before"); err != nil {
		return err
	}
	after, before := timeValue(data.After), timeValue(data.Before)
	found, err := kit.Fetch[forebay.Page[forebay.AuditEntry]](r, "/v1/audit",
		kit.Values("tenant", data.Of, "actor", data.Actor, "action", data.Action,
			"created_after", after, "created_before", before, "limit", strconv.Itoa(pageRows), "cursor", r.Query("cursor")))
	if err != nil {
		return err
	}
	for _, e := range found.Items {
		data.Entries = append(data.Entries, auditEntry{e})
	}
	data.Next = found.NextCursor
	command := "forebay audit list"
	for _, flag := range []struct{ name, value string }{{"tenant", data.Of}, {"actor", data.Actor}, {"action", data.Action}, {"after", after}, {"before", before}} {
		if flag.value != "" {
			command += " --" + flag.name + "=" + kit.Shell(flag.value)
		}
	}
	return pages.Render(r, "audit", kit.Page{Title: "Audit log", Section: auditPath, Data: data, Commands: []string{command, "forebay audit verify"}, Still: r.Query("cursor") != ""})
}

// verifyRows is how many entries one step of the check looks at.
const verifyRows = "5000"

type verifyData struct {
	From   string // head that the step began at; "": the first entry
	Result *forebay.AuditVerification
	First  int64 // entry that it began at
}

// Last is the number of the last good entry.
func (d verifyData) Last() int64 {
	head, err := forebay.ParseAuditHead(d.Result.Head)
	if err != nil {
		return 0
	}
	return head.Number
}

// verifyAudit answers GET /audit/verify. With from it does one step of the check.
func verifyAudit(r *kit.Request) error {
	data := verifyData{From: strings.TrimSpace(r.Query("from"))}
	command := "forebay audit verify"
	if r.URL.Query().Has("from") {
		head, err := forebay.ParseAuditHead(data.From)
		if err != nil {
			return err
		}
		data.First = max(head.Number, 1)
		result, err := kit.Fetch[forebay.AuditVerification](r, "/v1/audit/verify", kit.Values("from", data.From, "limit", verifyRows))
		if err != nil {
			return err
		}
		data.Result = &result
		if data.From != "" {
			command += " --from " + kit.Shell(data.From)
		}
	}
	return pages.Render(r, "verify", kit.Page{Title: "Check the audit log", Section: auditPath, Data: data, Commands: []string{command}, Still: true})
}
