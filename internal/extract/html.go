package extract

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/language"
)

// maxTokenBytes bounds one tag or one run of text of an HTML document.
const maxTokenBytes = 4 << 20

// Elements whose content is not text of the document, those that begin a line, and those that
// begin a paragraph.
var (
	unsaid = map[atom.Atom]bool{
		atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true, atom.Svg: true,
		atom.Iframe: true, atom.Object: true, atom.Canvas: true, atom.Textarea: true, atom.Select: true, atom.Button: true,
	}
	lines = map[atom.Atom]bool{
		atom.Br: true, atom.Li: true, atom.Tr: true, atom.Dt: true, atom.Dd: true, atom.Option: true, atom.Figcaption: true, atom.Caption: true,
	}
	paragraphs = map[atom.Atom]bool{
		atom.P: true, atom.Div: true, atom.Section: true, atom.Article: true, atom.Main: true, atom.Header: true, atom.Footer: true, atom.Nav: true,
		atom.Aside: true, atom.Ul: true, atom.Ol: true, atom.Dl: true, atom.Table: true, atom.Blockquote: true, atom.Pre: true, atom.Form: true,
		atom.Figure: true, atom.Hr: true, atom.Address: true, atom.Details: true, atom.Summary: true, atom.Fieldset: true, atom.Body: true,
		atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true,
	}
	headingLevels = map[atom.Atom]int{atom.H1: 1, atom.H2: 2, atom.H3: 3, atom.H4: 4, atom.H5: 5, atom.H6: 6}
)

// readHTML reads what a browser would show.
func readHTML(data []byte, declared string) (Text, error) {
	if declared == "" && !utf8.Valid(data) {
		head := data[:min(len(data), 1024)] // where a meta element may declare it; browsers would guess if none does
		if bytes.Contains(bytes.ToLower(head), []byte("charset")) {
			_, declared, _ = charset.DetermineEncoding(head, "")
		}
	}
	body, err := decode(data, declared)
	if err != nil {
		return Text{}, err
	}
	p := page{tokens: html.NewTokenizer(bytes.NewReader([]byte(body)))}
	p.tokens.SetMaxBuf(maxTokenBytes)
	if err := p.read(); err != nil {
		return Text{}, broken("the HTML has a part that is too long")
	}
	if p.text.Len() > MaxTextBytes {
		return Text{}, errLong
	}
	p.said.Body = strings.TrimRight(p.text.String(), " \n")
	return p.said, nil
}

// page is an HTML document that is being read.
type page struct {
	tokens *html.Tokenizer
	said   Text
	text   strings.Builder
	title  strings.Builder

	hidden  atom.Atom // the element that is left out, 0: none
	depth   int       // of elements of the same name in it
	inTitle bool
	pre     int
	blank   []byte // white space within pre that is due before its next text
	space   bool   // white space is due before the next word
	breaks  int    // line feeds that are due before it

	heading   int // level of the one that is open; 0: none
	headingAt int
}

func (p *page) read() error {
	for {
		kind := p.tokens.Next()
		switch kind {
		case html.ErrorToken:
			if err := p.tokens.Err(); !errors.Is(err, io.EOF) {
				return err
			}
			p.endHeading()
			p.said.Title = p.title.String()
			return nil
		case html.TextToken:
			text, _ := printable(string(p.tokens.Text()))   // references such as &#27; are resolved by now
			p.write(strings.ReplaceAll(text, "\u00ad", "")) // a soft hyphen is where a word may be broken
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			name, attributes := p.tokens.TagName()
			p.tag(atom.Lookup(name), kind, attributes)
		}
		if p.text.Len() > MaxTextBytes {
			return nil
		}
	}
}

func (p *page) tag(name atom.Atom, kind html.TokenType, attributes bool) {
	begins := kind != html.EndTagToken
	if p.hidden != 0 {
		if name == p.hidden && kind == html.StartTagToken {
			p.depth++
		} else if name == p.hidden && !begins {
			if p.depth--; p.depth == 0 {
				p.hidden = 0
			}
		}
		return
	}
	switch {
	case unsaid[name]:
		if kind == html.StartTagToken {
			p.hidden, p.depth = name, 1
		}
		return
	case name == atom.Title && p.text.Len() == 0:
		p.inTitle = begins && p.title.Len() == 0
		return
	case name == atom.Html && begins && attributes:
		p.said.Language = Language(p.attribute("lang"))
	case name == atom.Td || name == atom.Th:
		p.space = true
	case name == atom.Pre && begins:
		p.pre++
	case name == atom.Pre:
		p.pre = max(0, p.pre-1)
	}
	if paragraphs[name] {
		p.endHeading()
		p.breaks, p.blank = 2, nil
	} else if lines[name] && (begins || name != atom.Br) {
		p.breaks, p.blank = max(p.breaks, 1), nil // what ends a line does not begin the next one
	}
	if level := headingLevels[name]; level > 0 && begins {
		p.heading, p.headingAt = level, -1
	}
}

// attribute returns the value of an attribute of the tag that was just read.
func (p *page) attribute(wanted string) string {
	for {
		name, value, more := p.tokens.TagAttr()
		if string(name) == wanted {
			return string(value)
		}
		if !more {
			return ""
		}
	}
}

// Language returns a language's BCP 47 tag in its usual form, "" for an invalid one.
func Language(s string) string {
	tag, err := language.Parse(strings.TrimSpace(s))
	if err != nil || tag == language.Und {
		return ""
	}
	return tag.String()
}

func (p *page) write(s string) {
	switch {
	case p.hidden != 0:
		return
	case p.inTitle:
		p.title.WriteString(cut(s, MaxTitleBytes))
		return
	case p.pre > 0:
		p.writeAsIs(s)
		return
	}
	rest := s
	for rest != "" {
		word := strings.TrimLeft(rest, " \t\n\u00a0")
		p.space = p.space || len(word) < len(rest)
		end := strings.IndexAny(word, " \t\n\u00a0")
		if end < 0 {
			end = len(word)
		}
		if end > 0 {
			p.due()
			p.text.WriteString(word[:end])
		}
		rest = word[end:]
	}
}

// writeAsIs writes text of a pre element with its white space, but for that at the element's end
// and line feeds at its beginning. Highlighted code is many short texts, and some are only white
// space.
func (p *page) writeAsIs(s string) {
	said := strings.TrimSpace(s)
	if said == "" {
		p.blank = append(p.blank, s...)
		return
	}
	begin := strings.Index(s, said)
	p.blank = append(p.blank, s[:begin]...)
	if p.breaks > 0 {
		p.blank = bytes.TrimLeft(p.blank, "\n")
	}
	p.due()
	p.text.Write(p.blank)
	p.text.WriteString(said)
	p.blank = append(p.blank[:0], s[begin+len(said):]...)
}

// due writes the pending white space before a word.
func (p *page) due() {
	if p.text.Len() > 0 {
		switch {
		case p.breaks > 0:
			p.text.WriteString("\n\n"[:p.breaks])
		case p.space:
			p.text.WriteByte(' ')
		}
	}
	p.breaks, p.space = 0, false
	if p.heading > 0 && p.headingAt < 0 {
		p.headingAt = p.text.Len()
	}
}

func (p *page) endHeading() {
	if p.heading > 0 && p.headingAt >= 0 {
		p.said.Headings = addHeading(p.said.Headings, p.headingAt, p.heading, p.text.String()[p.headingAt:])
	}
	p.heading = 0
}
