//go:build hostile

package hostile

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// pdf writes objects 1 to n with a table of where they stand. The first is the catalog. trailer is
// what the trailer has besides.
func pdf(trailer string, objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	var at []int
	for i, object := range objects {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, trailer, table)
	return b.Bytes()
}

// textPDF has one page that says something.
func textPDF(says string) []byte {
	content := "BT /F1 12 Tf 72 700 Td (" + says + ") Tj ET"
	return pdf("", "<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>",
		fmt.Sprintf("<</Length %d>>\nstream\n%s\nendstream", len(content), content), "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
}

// cyclicPDFs refer to themselves, each by another way.
func cyclicPDFs() map[string][]byte {
	const catalog, page = "<</Type/Catalog/Pages 2 0 R>>", "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>"
	// A table whose /Prev is itself: the offset does not change with its own digits.
	at := bytes.Index(pdf("/Prev 000000", catalog, "<</Type/Pages/Kids[3 0 R]/Count 1>>", page), []byte("xref\n"))
	return map[string][]byte{
		"kids that hold themselves":  pdf("", catalog, "<</Type/Pages/Kids[2 0 R]/Count 1>>"),
		"kids that hold the root":    pdf("", catalog, "<</Type/Pages/Kids[3 0 R 3 0 R]/Count 4>>", "<</Type/Pages/Kids[2 0 R 2 0 R]/Count 4/Parent 2 0 R>>"),
		"a parent that is its page":  pdf("", catalog, "<</Type/Pages/Kids[3 0 R]/Count 1>>", "<</Type/Page/Parent 3 0 R>>"),
		"parents that alternate":     pdf("", catalog, "<</Type/Pages/Kids[4 0 R]/Count 1/Parent 3 0 R>>", "<</Type/Pages/Kids[2 0 R]/Count 1/Parent 2 0 R>>", "<</Type/Page/Parent 3 0 R>>"),
		"a table that continues it":  pdf(fmt.Sprintf("/Prev %06d", at), catalog, "<</Type/Pages/Kids[3 0 R]/Count 1>>", page),
		"a length that refers to it": pdf("", catalog, "<</Type/Pages/Kids[3 0 R]/Count 1>>", "<</Type/Page/Parent 2 0 R/Contents 4 0 R>>", "<</Length 4 0 R>>\nstream\nBT ET\nendstream"),
	}
}

// Documents of 400 bytes that refer to themselves take no other tenant's time.
func TestCyclicPDFs(t *testing.T) {
	onEngines(t, func(t *testing.T, postgres bool) {
		target := Start(t, TargetOptions{Postgres: postgres})
		read := func(says string) time.Duration {
			begun := time.Now()
			got := target.victim().send(t.Context(), "POST", "/v1/documents?id="+unique("d"), "application/pdf", textPDF(says))
			id := between(string(got.Body), `"id":"`, `"`)
			var d forebay.Document
			if got.Status != 202 || !within(t.Context(), size(2*patience, 15*time.Second), func() bool {
				target.victim().must(t, "GET", "/v1/documents/"+id, nil, &d)
				return d.Branches.Split.Status == forebay.BranchDone || d.Branches.Split.Status == forebay.BranchFailed
			}) {
				t.Errorf("the victim's document is not read: %s, %+v", got, d.Branches.Split)
			}
			if d.TextBytes == 0 {
				t.Errorf("the victim's document has no text: %+v", d.Branches.Split)
			}
			return time.Since(begun)
		}
		busy := contention()
		usual := max(read("The first document"), read("The second document"), read("The third document"))
		begun := time.Now()
		var ids []string
		for name, content := range cyclicPDFs() {
			got := target.attacker().send(t.Context(), "POST", "/v1/documents?id="+unique("cycle"), "application/pdf", content)
			if got.Status != 202 {
				t.Fatalf("%s: %s", name, got)
			}
			ids = append(ids, between(string(got.Body), `"id":"`, `"`))
		}
		attacked := max(read("The fourth document"), read("The fifth document"))
		reportTest(t, usual, attacked)
		if limit := tolerated(usual, 4*noticeable, busy); attacked > limit {
			t.Errorf("the victim's document took %s beside cyclic ones and %s without; the limit is %s", short(attacked), short(usual), short(limit))
		}
		for _, id := range ids {
			var d forebay.Document
			if !within(t.Context(), size(6*patience, 15*time.Second)-time.Since(begun)+time.Second, func() bool {
				target.attacker().must(t, "GET", "/v1/documents/"+id, nil, &d)
				return d.Status != forebay.DocumentProcessing
			}) {
				t.Errorf("a cyclic document is still read after %s", short(time.Since(begun)))
			}
		}
	})
}
