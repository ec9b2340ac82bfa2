// Package extract turns plain text, Markdown, HTML and PDF into one UTF-8 text. With the text
// come its title, its headings and where pages begin. A [Chunker] splits a text into [Chunk]
// values of a bounded number of tokens, with an overlap. It cuts at headings, paragraphs and
// sentences.
//
// Every position is a byte offset into that text. A hostile document can use only bounded
// resources: sizes, pages and headings are limited. PDF parsers are intricate, so a PDF is read
// by a process of its own with limited memory and time.
package extract

import (
	"context"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// Kind is a kind of document that can be read.
type Kind string

// The kinds, by the media types that documents have.
const (
	Plain    Kind = "text/plain"
	Markdown Kind = "text/markdown"
	HTML     Kind = "text/html"
	PDF      Kind = "application/pdf"
)

// Limits on one document.
const (
	MaxTextBytes    = 16 << 20 // of the text that was read from it
	MaxTitleBytes   = 300
	maxHeadings     = 20_000
	maxHeadingBytes = 200
)

// Heading is a heading of the text.
type Heading struct {
	Offset int // of its line in the text
	Level  int // 1 is the highest
	Title  string
}

// Text is what a document says.
type Text struct {
	Body     string // UTF-8 without control characters but line feed and tab
	Title    string // as the document itself gives it, on one line; "": it does not
	Language string // the same: a BCP 47 tag
	Headings []Heading
	Pages    []int // where each page begins in Body; nil: it has no pages
}

// Source is a document as it came.
type Source struct {
	Kind    Kind
	Charset string // of a text, if it is known; "": it says so itself, or is UTF-8
	Data    []byte
}

var mediaTypes = map[string]Kind{
	"text/plain": Plain, "text/markdown": Markdown, "text/x-markdown": Markdown, "text/html": HTML, "application/xhtml+xml": HTML, "application/pdf": PDF,
}

var extensions = map[string]Kind{
	".txt": Plain, ".text": Plain, ".log": Plain, ".md": Markdown, ".markdown": Markdown, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".pdf": PDF,
}

// KindOf returns the kind of a document by its content type, else by its name. Failing both, it
// guesses from the first bytes and says so. Its error has CodeUnsupportedMedia.
func KindOf(contentType, name string, data []byte) (k Kind, charset string, guessed bool, err error) {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err == nil && mediaType != "application/octet-stream" && mediaType != "" {
		if k, known := mediaTypes[mediaType]; known {
			return k, params["charset"], false, nil
		}
		return "", "", false, unsupported(mediaType)
	}
	if extension := strings.ToLower(path.Ext(name)); extension != "" {
		if k, known := extensions[extension]; known {
			return k, "", false, nil
		}
	}
	sniffed, params, _ := mime.ParseMediaType(http.DetectContentType(data[:min(len(data), 512)]))
	if k, known := mediaTypes[sniffed]; known {
		charset := params["charset"]
		if k != Plain || charset == "utf-8" { // what is only thought
			charset = ""
		}
		return k, charset, true, nil
	}
	return "", "", false, unsupported(sniffed)
}

func unsupported(what string) error {
	return forebay.Errorf(forebay.CodeUnsupportedMedia, "a document is text/plain, text/markdown, text/html or application/pdf, not %.60s", what)
}

// Read returns the text of a document. Its errors are *forebay.Error values about the document,
// or the error of ctx.
func Read(ctx context.Context, s Source) (t Text, err error) {
	if len(s.Data) == 0 {
		return t, errEmpty
	}
	switch s.Kind {
	case HTML:
		t, err = readHTML(s.Data, s.Charset)
	case PDF:
		t, err = readPDF(ctx, s.Data)
	default:
		t.Body, err = decode(s.Data, s.Charset)
		if err == nil && s.Kind == Markdown {
			t.Headings = markdownHeadings(t.Body)
		}
	}
	if err != nil {
		return Text{}, err
	}
	if strings.TrimSpace(t.Body) == "" {
		return Text{}, errEmpty
	}
	title, _ := printable(t.Title)
	if t.Title = cut(oneLine(title), MaxTitleBytes); t.Title == "" && len(t.Headings) > 0 && t.Headings[0].Level <= 2 {
		t.Title = t.Headings[0].Title
	}
	return t, nil
}

// The errors of documents.
var (
	errEmpty = forebay.Errorf(forebay.CodeDocumentEmpty, "the document has no text")
	errLong  = forebay.Errorf(forebay.CodeDocumentTooLarge, "the document has more than %d bytes of text", MaxTextBytes)
)

func broken(format string, args ...any) *forebay.Error {
	return forebay.Errorf(forebay.CodeDocumentBroken, format, args...)
}

// oneLine joins the words of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// cut returns at most so many bytes of s, whole characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.TrimSpace(s[:most])
}

// addHeading notes a heading that has a text, unless there are too many.
func addHeading(list []Heading, offset, level int, title string) []Heading {
	if title = cut(oneLine(title), maxHeadingBytes); title == "" || len(list) >= maxHeadings {
		return list
	}
	return append(list, Heading{offset, level, title})
}
