package extract

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"github.com/forebayhq/forebay"
)

func read(t *testing.T, k Kind, charset, data string) (Text, error) {
	t.Helper()
	return Read(t.Context(), Source{Kind: k, Charset: charset, Data: []byte(data)})
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		contentType, name, data string
		want                    Kind
		charset                 string
	}{
		{"text/html; charset=ISO-8859-1", "a.pdf", "x", HTML, "ISO-8859-1"},
		{"application/octet-stream", "a.MD", "x", Markdown, ""},
		{"", "folder.v2/notes", "plain words", Plain, ""},
		{"", "", "%PDF-1.4\n…", PDF, ""},
		{"", "", "  <!DOCTYPE html><p>x", HTML, ""},
		{"", "", "\xfe\xff\x00a", Plain, "utf-16be"},
	} {
		k, charset, guessed, err := KindOf(c.contentType, c.name, []byte(c.data))
		if said := c.contentType+c.name != "" && c.name != "folder.v2/notes"; err != nil || k != c.want || charset != c.charset || guessed == said {
			t.Errorf("%q, %q: %q, %q, guessed: %t, %v", c.contentType, c.name, k, charset, guessed, err)
		}
	}
	for _, c := range [][3]string{{"image/png", "a.txt", "x"}, {"", "", "\x89PNG\r\n\x1a\n"}} {
		if _, _, _, err := KindOf(c[0], c[1], []byte(c[2])); forebay.CodeOf(err) != forebay.CodeUnsupportedMedia {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestPlainText(t *testing.T) {
	const want = "Grüße,\nWelt €"
	utf16, _ := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(want)
	for charset, data := range map[string]string{"": want, "UTF-8": "\ufeffGrüße,\r\nWelt €", "ignored": utf16} {
		if got, err := read(t, Plain, charset, data); err != nil || got.Body != want {
			t.Errorf("%q: %q, %v", charset, got.Body, err)
		}
	}
	latin, _ := charmap.Windows1252.NewEncoder().String(want)
	if got, err := read(t, Plain, "windows-1252", latin); err != nil || got.Body != want {
		t.Errorf("%q, %v", got.Body, err)
	}
	for _, c := range []struct {
		charset, data string
		want          forebay.Code
	}{
		{"", latin, forebay.CodeDocumentEncoding},
		{"klingon", want, forebay.CodeDocumentEncoding},
		{"", "\x00\x01\x02\x03 binary", forebay.CodeDocumentEncoding},
		{"", "", forebay.CodeDocumentEmpty},
		{"", " \n\t ", forebay.CodeDocumentEmpty},
		{"", strings.Repeat("x", MaxTextBytes+1), forebay.CodeDocumentTooLarge},
	} {
		if _, err := read(t, Plain, c.charset, c.data); forebay.CodeOf(err) != c.want {
			t.Errorf("%.20q: %v, want %s", c.data, err, c.want)
		}
	}
}

func TestMarkdownHeadings(t *testing.T) {
	body := "# One #\n\ntext\n\nTwo *a*\n---\n- item\n---\n```\n# no\n```\n   ### Three\n#no\n\nlong\nparagraph\n===\n\n    # code\n#\n"
	got, err := read(t, Markdown, "", body)
	want := []Heading{{0, 1, "One"}, {15, 2, "Two *a*"}, {51, 3, "Three"}}
	if err != nil || !slices.Equal(got.Headings, want) || got.Title != "One" || got.Body != body {
		t.Errorf("%+v, %v", got, err)
	}
}

// Code within a line is no fence, though it is between three backticks.
func TestHeadingsAfterInlineCode(t *testing.T) {
	got, err := read(t, Markdown, "", "```go test``` runs them.\n\n# Heading\n")
	if err != nil || !slices.Equal(got.Headings, []Heading{{26, 1, "Heading"}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHTML(t *testing.T) {
	got, err := read(t, HTML, "", `<!doctype html><html lang="de-at"><head><title> A &amp;
B </title><style>p{}</style></head><body><script>no()</script><h1>Head<b>ing</b></h1><p>One  <i>two</i>&nbsp;three<br>four</p>
<ul><li>a</li><li>b</li></ul><table><tr><td>1</td><td>2</td></tr></table><svg><text>no</text></svg><pre>
x  =
  1</pre><h2> </h2><h3>Sub</h3>end</body></html>`)
	want := "Heading\n\nOne two three\nfour\n\na\nb\n\n1 2\n\nx  =\n  1\n\nSub\n\nend"
	if err != nil || got.Body != want || got.Title != "A & B" || got.Language != "de-AT" {
		t.Errorf("%q\n%+v, %v", got.Body, got, err)
	}
	if want := []Heading{{0, 1, "Heading"}, {strings.Index(want, "Sub"), 3, "Sub"}}; !slices.Equal(got.Headings, want) {
		t.Errorf("%+v", got.Headings)
	}
	if got, err := read(t, HTML, "", "<meta charset=windows-1252><p>caf\xe9"); err != nil || got.Body != "café" {
		t.Errorf("%q, %v", got.Body, err)
	}
	if _, err := read(t, HTML, "", "<p>caf\xe9"); forebay.CodeOf(err) != forebay.CodeDocumentEncoding {
		t.Errorf("%v", err)
	}
	if _, err := read(t, HTML, "", "<script>x</script>"); forebay.CodeOf(err) != forebay.CodeDocumentEmpty {
		t.Errorf("%v", err)
	}
	if _, err := read(t, HTML, "", "<p a="+strings.Repeat("x", maxTokenBytes+1)); forebay.CodeOf(err) != forebay.CodeDocumentBroken {
		t.Errorf("%v", err)
	}
}

// Highlighted code has tags around its words. What is between them are its spaces and line feeds.
func TestHighlightedCode(t *testing.T) {
	for html, want := range map[string]string{
		"<pre>\n<b>if</b> <i>x</i>:\n<b>  y</b>\n\n<b>z</b>\n</pre>end":         "if x:\n  y\n\nz\n\nend",
		"<p>a</p><pre>\n<i>  b</i><br>  c\n</pre> <pre><i>\n</i></pre><p>d</p>": "a\n\n  b\n  c\n\nd",
		"<pre>if a: <br>  b <div>c  \n</div> <div>d</div></pre>":                "if a:\n  b\n\nc\n\nd",
	} {
		if got, err := read(t, HTML, "", html); err != nil || got.Body != want {
			t.Errorf("%q: %q, %v", html, got.Body, err)
		}
	}
}

// Soft hyphens say where words may be broken. Searches have the words whole.
func TestSoftHyphens(t *testing.T) {
	got, err := read(t, HTML, "", "<h1>Donau&shy;dampf&#173;schiff</h1><pre>a\u00adb</pre>")
	if err != nil || got.Body != "Donaudampfschiff\n\nab" || got.Title != "Donaudampfschiff" {
		t.Errorf("%+v, %v", got, err)
	}
}

// No control characters come from references in HTML, or from a PDF's title.
func TestControlCharactersInDisguise(t *testing.T) {
	got, err := read(t, HTML, "", "<title>a&#27;[31m&#0;b</title><h1>c&#x1b;d</h1><pre>e&#8;&#13;f</pre>g&#127;&#xFEFF;h")
	if want := "cd\n\ne\nf\n\ngh"; err != nil || got.Body != want || got.Title != "a[31m\uFFFDb" || got.Headings[0].Title != "cd" {
		t.Errorf("%q, %+v, %v", got.Body, got, err)
	}
	const said = "BT /F1 12 Tf (said) Tj ET"
	data := pdfOf("/Info 6 0 R", catalog, "<</Type /Pages /Count 1 /Kids [3 0 R]>>",
		"<</Type /Page /Parent 2 0 R /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>>>>", fmt.Sprintf("<</Length %d>>\nstream\n%s\nendstream", len(said), said),
		"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>", "<</Title <FEFF0061001B00000062>>>")
	got, err = Read(t.Context(), Source{Kind: PDF, Data: data})
	if err != nil || got.Title != "ab" {
		t.Errorf("title %q, %v", got.Title, err)
	}
}

func TestPDF(t *testing.T) {
	for _, name := range []string{"pages.pdf", "owner-password.pdf"} {
		got, err := Read(t.Context(), Source{Kind: PDF, Data: fixture(t, name)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{"Quarterly report\n", "two new sites opened in August", "Café prices in Zürich did not.", "quiet winter."} {
			if !strings.Contains(got.Body, want) {
				t.Errorf("%s lacks %q: %q", name, want, got.Body)
			}
		}
		if len(got.Pages) != 2 || !strings.HasPrefix(got.Body[got.Pages[1]:], "Outlook") {
			t.Errorf("%s: pages begin at %v: %q", name, got.Pages, got.Body)
		}
		if name == "pages.pdf" && (got.Title != "Quarterly report" || got.Language != "en-GB") {
			t.Errorf("title %q, language %q", got.Title, got.Language)
		}
	}
	whole := fixture(t, "pages.pdf")
	surrounded := slices.Concat([]byte("junk\n"), whole, []byte("\r\n\x00\x00"))
	if got, err := Read(t.Context(), Source{Kind: PDF, Data: surrounded[5:]}); err != nil || len(got.Pages) != 2 {
		t.Errorf("with something after it: %v", err)
	}
	for what, c := range map[string]struct {
		data []byte
		want forebay.Code
	}{
		"encrypted": {fixture(t, "encrypted.pdf"), forebay.CodeDocumentEncrypted},
		"aes256":    {fixture(t, "aes256.pdf"), forebay.CodeDocumentEncrypted},
		"a drawing": {fixture(t, "drawing.pdf"), forebay.CodeDocumentEmpty},
		"cut off":   {whole[:len(whole)/2], forebay.CodeDocumentBroken},
		"no PDF":    {[]byte(strings.Repeat("no PDF ", 100)), forebay.CodeDocumentBroken},
		"zeroed":    {slices.Concat(whole[:200], make([]byte, len(whole)-400), whole[len(whole)-200:]), forebay.CodeDocumentBroken},
	} {
		if _, err := Read(t.Context(), Source{Kind: PDF, Data: c.data}); forebay.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

// A PDF that needs too much memory ends only the process that reads it.
func TestPDFThatWantsAllMemory(t *testing.T) {
	whole := fixture(t, "pages.pdf")
	i := bytes.Index(whole, []byte("xref\n0 "))
	if i < 0 {
		t.Fatal("the fixture has no table of objects")
	}
	line := bytes.IndexByte(whole[i+5:], '\n')
	hostile := slices.Concat(whole[:i], []byte("xref\n900000000 1"), whole[i+5+line:])
	if _, err := Read(t.Context(), Source{Kind: PDF, Data: hostile}); forebay.CodeOf(err) != forebay.CodeDocumentBroken {
		t.Errorf("%v", err)
	}
}

func words(s string) int { return min(len(strings.Fields(s))+strings.Count(s, "\n"), max(1, len(s))) }

func TestChunks(t *testing.T) {
	var b strings.Builder
	var headings []Heading
	for s := range 3 {
		headings = append(headings, Heading{b.Len(), 1 + s%2, fmt.Sprintf("Section %d", s)})
		fmt.Fprintf(&b, "Section %d\n\n", s)
		for p := range 4 {
			fmt.Fprintf(&b, "Paragraph %d of %d is here. It has – two sentences.\nAnd a line.\n\n", p, s)
		}
	}
	body := b.String()
	chunks := Chunker{MaxTokens: 30, Overlap: 8, Count: words}.Split(Text{Body: body, Headings: headings, Pages: []int{0, headings[2].Offset}})
	check(t, body, chunks, 30)
	if len(chunks) < 6 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for i, c := range chunks {
		text := body[c.Start:c.End]
		if strings.HasSuffix(text, "Section 1") || strings.HasSuffix(text, "Section 2") {
			t.Errorf("chunk %d ends with a heading: %q", i, text)
		}
		if i > 0 && c.Start < chunks[i-1].End && strings.HasPrefix(text, "Section") {
			t.Errorf("chunk %d overlaps over a heading: %q", i, text)
		}
		if string([]rune(body)[c.StartRune:c.EndRune]) != text {
			t.Errorf("chunk %d: its characters %d to %d are not its text", i, c.StartRune, c.EndRune)
		}
	}
	if first, last := chunks[0], chunks[len(chunks)-1]; first.Page != 1 || last.Page != 2 ||
		!slices.Equal(first.Headings, []string{"Section 0"}) || !slices.Equal(last.Headings, []string{"Section 2"}) {
		t.Errorf("first %+v, last %+v", first, last)
	}
	middle := outlineOf(headings).pathAt(headings[1].Offset + 20)
	if !slices.Equal(middle, []string{"Section 0", "Section 1"}) {
		t.Errorf("path %q", middle)
	}
	overlaps := 0
	for i := 1; i < len(chunks); i++ {
		if chunks[i].Start < chunks[i-1].End {
			overlaps++
		}
	}
	if overlaps == 0 {
		t.Error("no chunks overlap")
	}
}

// check reports chunks that do not hold all of a text or are too large.
func check(t testing.TB, body string, chunks []Chunk, most int) {
	t.Helper()
	at, before := 0, -1
	for i, c := range chunks {
		switch {
		case c.Start < 0 || c.End > len(body) || c.Start >= c.End:
			t.Fatalf("chunk %d is %d to %d of %d", i, c.Start, c.End, len(body))
		case c.Start <= before:
			t.Fatalf("chunk %d begins at %d, the one before at %d", i, c.Start, before)
		case c.End <= at:
			t.Fatalf("chunk %d adds nothing", i)
		case at < c.Start && strings.TrimSpace(body[at:c.Start]) != "":
			t.Fatalf("%q is in no chunk", body[at:c.Start])
		case c.Tokens > most:
			t.Fatalf("chunk %d has %d tokens", i, c.Tokens)
		}
		at, before = c.End, c.Start
	}
	if strings.TrimSpace(body[at:]) != "" {
		t.Fatalf("%q is in no chunk", body[at:])
	}
}

func TestLongSentences(t *testing.T) {
	for _, body := range []string{strings.Repeat("x", 10_000), strings.Repeat("word ", 3000), strings.Repeat("語", 5000), strings.Repeat("終。", 3000), "a" + strings.Repeat(" ", 10_000) + "b."} {
		chunks := Chunker{MaxTokens: 100, Overlap: 10, Count: func(s string) int { return (len(s) + 3) / 4 }}.Split(Text{Body: body})
		check(t, body, chunks, 100)
	}
}

// Finding the headings over a chunk does not scan all headings.
func TestChunksOfManyHeadings(t *testing.T) {
	const headings = 200_000
	body := strings.Repeat("## h\n\nsome words\n\n", headings)
	began := time.Now()
	chunks := Chunker{MaxTokens: 4, Count: func(s string) int { return len(s) / 4 }}.Split(Text{Body: body, Headings: markdownHeadings(body)})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("%d chunks took %v", len(chunks), took)
	}
	if len(chunks) < headings || len(chunks[headings-1].Headings) != 1 {
		t.Errorf("%d chunks, under %q", len(chunks), chunks[len(chunks)-1].Headings)
	}
}
