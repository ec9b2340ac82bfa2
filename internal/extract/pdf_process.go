package extract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/ledongthuc/pdf"

	"github.com/forebayhq/forebay"
)

// servePDF reads a PDF from in, within so many seconds of processor time. It writes a pdfAnswer
// to out and returns the exit code.
func servePDF(in io.Reader, out io.Writer, processorTime string) int {
	time.AfterFunc(pdfTimeout, func() { os.Exit(3) }) //nolint:forbidigo // nobody may be there any more to end it
	debug.SetMaxStack(maxStack)
	seconds, err := strconv.ParseUint(processorTime, 10, 32)
	if err != nil || limitProcess(pdfMemory, seconds) != nil {
		return 4
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPDFBytes+1))
	if err != nil {
		return 2
	}
	var answer pdfAnswer
	if answer.Text, err = parsePDF(data); err != nil {
		var known *forebay.Error
		if !errors.As(err, &known) {
			known = broken("the PDF is damaged")
		}
		answer.Code, answer.Message = known.Code, known.Message
	}
	if json.NewEncoder(out).Encode(answer) != nil {
		return 2
	}
	return 0
}

var errEncrypted = forebay.Errorf(forebay.CodeDocumentEncrypted, "the PDF is encrypted; it cannot be read without its password")

func parsePDF(data []byte) (t Text, err error) {
	defer func() { // how the parser reports much of what it meets
		if v := recover(); v != nil {
			t, err = Text{}, fmt.Errorf("read PDF: %v", v)
		}
	}()
	data, err = pdfFile(data)
	if err != nil {
		return t, err
	}
	file := &countedReader{r: bytes.NewReader(data), left: tableReads + len(data)/tableBytes}
	r, err := pdf.NewReader(file, int64(len(data)))
	file.left = math.MaxInt
	switch {
	case errors.Is(err, pdf.ErrInvalidPassword), err != nil && strings.Contains(err.Error(), "encryption"):
		return t, errEncrypted
	case err != nil:
		return t, err
	}
	pages := r.NumPage()
	switch {
	case pages < 1:
		return t, broken("the PDF has no pages")
	case pages > MaxPages:
		return t, forebay.Errorf(forebay.CodeDocumentTooLarge, "the PDF has %d pages; the limit is %d", pages, MaxPages)
	}
	root := r.Trailer().Key("Root")
	t.Title, t.Language = r.Trailer().Key("Info").Key("Title").Text(), Language(root.Key("Lang").Text())
	var b strings.Builder
	err = eachPage(root.Key("Pages"), 0, func(p pdf.Page) error {
		if len(t.Pages) == pages || b.Len() > MaxTextBytes {
			return errEnough
		}
		t.Pages = append(t.Pages, b.Len())
		if said := strings.TrimSpace(pageText(p.Content().Text)); said != "" {
			b.WriteString(said + "\n\n")
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return Text{}, err
	}
	if t.Body, err = clean(strings.ToValidUTF8(strings.TrimRight(b.String(), "\n"), "\uFFFD")); err != nil {
		return Text{}, err
	}
	if t.Body == "" {
		return Text{}, forebay.Errorf(forebay.CodeDocumentEmpty, "the PDF has no text; pages that are pictures would need text recognition")
	}
	return t, nil
}

// Some files make the parser read the same tables again and again, because these refer to each
// other in a circle.
const (
	maxStack   = 64 << 20 // bytes; objects that stand in each other take all there is
	tableReads = 1000     // to begin with
	tableBytes = 32       // of the file for each further one: no table is shorter
)

var errCircle = broken("the PDF refers to itself without end")

// countedReader fails when the parser has read too often.
type countedReader struct {
	r    io.ReaderAt
	left int
}

func (c *countedReader) ReadAt(p []byte, at int64) (int, error) {
	if c.left--; c.left < 0 {
		panic(errCircle) // the parser takes an error for the end of the file
	}
	return c.r.ReadAt(p, at)
}

// maxPageDepth bounds the depth of the page tree. Usually its nodes have dozens of children each.
const maxPageDepth = 64

var errEnough = errors.New("enough pages")

// eachPage calls f with the pages below a node of the tree, in order, until it fails.
func eachPage(node pdf.Value, depth int, f func(pdf.Page) error) error {
	if depth > maxPageDepth {
		return errCircle
	}
	switch node.Key("Type").Name() {
	case "Pages":
		kids := node.Key("Kids")
		for i := range kids.Len() {
			if err := eachPage(kids.Index(i), depth+1, f); err != nil {
				return err
			}
		}
	case "Page":
		if err := checkParents(node); err != nil {
			return err
		}
		return f(pdf.Page{V: node})
	}
	return nil
}

// checkParents refuses a circle among a page's parents, in which the parser would look for the
// page's resources for ever.
func checkParents(page pdf.Value) error {
	for depth := 0; !page.IsNull() && page.Key("Resources").IsNull(); depth++ {
		if depth > maxPageDepth {
			return errCircle
		}
		page = page.Key("Parent")
	}
	return nil
}

// pdfFile returns the PDF within data, which may begin and end with other bytes. It writes the
// header the parser expects; the parser does not need the version.
func pdfFile(data []byte) ([]byte, error) {
	const nearEnds = 1024 // where readers look (ISO 32000-1, annex H.3)
	begin := bytes.Index(data[:min(len(data), nearEnds)], []byte("%PDF-"))
	if begin < 0 || len(data)-begin < 100 {
		return nil, broken("the file is no PDF")
	}
	data = data[begin:]
	const eof = "%%EOF"
	end := bytes.LastIndex(data, []byte(eof))
	if end < 0 || end < len(data)-nearEnds {
		return nil, broken("the PDF has no end: it was cut off")
	}
	data = bytes.Clone(data[:end+len(eof)])
	copy(data, "%PDF-1.7\n")
	return data, nil
}

// pageText puts the glyphs of a page, in drawing order, into lines and paragraphs.
func pageText(glyphs []pdf.Text) string {
	var b strings.Builder
	var last pdf.Text
	for _, g := range glyphs {
		if g.S == "\n" || g.S == "" {
			continue
		}
		size := math.Max(math.Abs(g.FontSize), 1)
		if b.Len() > 0 {
			down, right := last.Y-g.Y, g.X-(last.X+last.W)
			switch {
			case down > 1.8*size || down < -1.8*size: // another paragraph, or column
				b.WriteString("\n\n")
			case math.Abs(down) > 0.5*size:
				b.WriteByte('\n')
			case right > 0.18*size && last.S != " " && g.S != " ":
				b.WriteByte(' ')
			}
		}
		b.WriteString(g.S)
		last = g
	}
	return b.String()
}
