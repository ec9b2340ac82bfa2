package extract

import (
	"context"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// FuzzRead reads anything as any kind of text and cuts it into chunks.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{"# a\n\nb. c\n", "<h1>a<p>b<script>", "a\r\nb\n===\n\xff", "\xff\xfea\x00", "语。语！", "<meta charset=utf-16>\x00<", "<title>a&#1;</title>b&#27;&#13;c"} {
		for kind := range 3 {
			f.Add(seed, kind, 7, 3)
		}
	}
	f.Fuzz(func(t *testing.T, data string, kind, most, overlap int) {
		kinds := []Kind{Plain, Markdown, HTML}
		if kind < 0 || kind >= len(kinds) || most < 4 || most > 500 || overlap < 0 || overlap > most/2 {
			return
		}
		text, err := Read(t.Context(), Source{Kind: kinds[kind], Data: []byte(data)})
		if err != nil {
			if forebay.CodeOf(err) == forebay.CodeInternal {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		if !utf8.ValidString(text.Body) {
			t.Fatalf("%q is not UTF-8", text.Body)
		}
		for _, said := range []string{text.Title, text.Body} {
			if clean, _ := printable(said); clean != said {
				t.Fatalf("%q has control characters", said)
			}
		}
		last := 0
		for _, h := range text.Headings {
			if h.Offset < last || h.Offset >= len(text.Body) || !utf8.RuneStart(text.Body[h.Offset]) {
				t.Fatalf("a heading at %d after %d of %q", h.Offset, last, text.Body)
			}
			last = h.Offset
		}
		chunks := Chunker{MaxTokens: most, Overlap: overlap, Count: func(s string) int { return (len(s) + 3) / 4 }}.Split(text)
		check(t, text.Body, chunks, most)
	})
}

// FuzzPDF gives the parser any bytes. A process of its own contains crashes of the parser; here
// it must only fail with an error that has a message.
func FuzzPDF(f *testing.F) {
	for _, name := range []string{"pages.pdf", "owner-password.pdf", "drawing.pdf"} {
		f.Add(fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		text, err := Read(ctx, Source{Kind: PDF, Data: data})
		if err == nil && !utf8.ValidString(text.Body) {
			t.Fatalf("%q is not UTF-8", text.Body)
		}
		if err != nil && ctx.Err() == nil && forebay.CodeOf(err) == forebay.CodeInternal {
			t.Fatalf("an error without a code: %v", err)
		}
	})
}
