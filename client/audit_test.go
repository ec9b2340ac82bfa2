package client

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestVerifyAudit(t *testing.T) {
	head := func(n int64) string { return forebay.AuditHead{Number: n, Hash: strings.Repeat("ab", 32)}.String() }
	for name, c := range map[string]struct {
		parts []forebay.AuditVerification
		from  string
		want  forebay.AuditVerification
		fails bool
	}{
		"at once": {[]forebay.AuditVerification{{Intact: true, Checked: 3, Head: head(3), Done: true}}, "",
			forebay.AuditVerification{Intact: true, Checked: 3, Head: head(3), Done: true}, false},
		"in parts": {[]forebay.AuditVerification{{Intact: true, Checked: 4, Head: head(4)}, {Intact: true, Checked: 4, Head: head(7)}, {Intact: true, Checked: 2, Head: head(8), Done: true}}, "",
			forebay.AuditVerification{Intact: true, Checked: 8, Head: head(8), Done: true}, false},
		"broken": {[]forebay.AuditVerification{{Intact: true, Checked: 4, Head: head(4)}, {Checked: 2, Head: head(4), Broken: &forebay.AuditBreak{Number: 5, Reason: "r"}}}, head(1),
			forebay.AuditVerification{Checked: 5, Head: head(4)}, false},
		"a server that goes round in circles": {[]forebay.AuditVerification{{Intact: true, Checked: 1, Head: head(1)}, {Intact: true, Checked: 1, Head: head(1)}}, "",
			forebay.AuditVerification{Intact: true, Checked: 1, Head: head(1)}, true},
	} {
		from := c.from
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("from"); r.URL.Path != "/v1/audit/verify" || got != from || len(c.parts) == 0 {
				t.Errorf("%s: asked for %s from %q, want %q", name, r.URL.Path, got, from)
			}
			part := c.parts[0]
			c.parts, from = c.parts[1:], part.Head
			answerJSON(w, http.StatusOK, part)
		})
		got, err := client.VerifyAudit(t.Context(), c.from)
		if broken := got.Broken; broken != nil && broken.Number != 5 {
			t.Errorf("%s: %+v", name, broken)
		}
		got.Broken = nil
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, c.want)
		}
	}
}
