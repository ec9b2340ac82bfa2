package extract

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// pdfOf makes a PDF of objects, numbered from 1, with what its trailer has beside Size and Root.
func pdfOf(trailer string, objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	var at []int
	for i, o := range objects {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, offset := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	trailer = strings.ReplaceAll(trailer, "TABLE", fmt.Sprint(table))
	fmt.Fprintf(&b, "trailer\n<</Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, trailer, table)
	return b.Bytes()
}

const (
	catalog = "<</Type /Catalog /Pages 2 0 R>>"
	content = "<</Length 0>>\nstream\n\nendstream"
)

// A small PDF whose objects refer to each other in a circle is refused at once.
func TestPDFInCircles(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"a node is its own child", pdfOf("", catalog, "<</Type /Pages /Count 3 /Kids [2 0 R]>>")},
		{"children of each other", pdfOf("", catalog, "<</Type /Pages /Count 9 /Kids [3 0 R 3 0 R]>>", "<</Type /Pages /Count 9 /Kids [2 0 R 2 0 R]>>")},
		{"a page is its own parent", pdfOf("", catalog, "<</Type /Pages /Count 1 /Kids [3 0 R]>>", "<</Type /Page /Parent 3 0 R /Contents 4 0 R>>", content)},
		{"parents of each other", pdfOf("", catalog, "<</Type /Pages /Count 1 /Kids [3 0 R] /Parent 3 0 R>>", "<</Type /Page /Parent 2 0 R /Contents 4 0 R>>", content)},
		{"a table before itself", pdfOf("/Prev TABLE", catalog, "<</Type /Pages /Count 1 /Kids []>>")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := Read(t.Context(), Source{Kind: PDF, Data: c.data})
			if forebay.CodeOf(err) != forebay.CodeDocumentBroken || !strings.Contains(err.Error(), "without end") {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	}
}

// A PDF that takes long in other ways exceeds its processor time, which grows with its size.
func TestPDFProcessorTime(t *testing.T) {
	if small, large := processorSeconds(400), processorSeconds(8<<20); small != 2 || large != 60 {
		t.Errorf("%d s for 400 bytes, %d s for 8 MiB", small, large)
	}
	// An object stream that extends itself and lacks the object that is asked for.
	_, err := readPDFWithin(t.Context(), selfExtending(), 1)
	if forebay.CodeOf(err) != forebay.CodeDocumentBroken || !strings.Contains(err.Error(), "processor time") {
		t.Errorf("%v", err)
	}
}

// selfExtending is a PDF whose catalog is looked for in an object stream that extends itself.
func selfExtending() []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	at := b.Len()
	b.WriteString("1 0 obj\n<</Type /ObjStm /N 1 /First 4 /Length 8 /Extends 1 0 R>>\nstream\n9 0 null\nendstream\nendobj\n")
	table := b.Len()
	rows := []byte{0, 0, 0, 0, 1, byte(at >> 8), byte(at), 0, 1, byte(table >> 8), byte(table), 0, 2, 0, 1, 0}
	fmt.Fprintf(&b, "2 0 obj\n<</Type /XRef /Size 4 /W [1 2 1] /Root 3 0 R /Length %d>>\nstream\n%s\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n", len(rows), rows, table)
	return b.Bytes()
}
