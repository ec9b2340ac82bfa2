package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// WriteJSON writes a value as JSON that is safe to show on a terminal.
func WriteJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(PlainJSON(w))
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// PlainJSON returns a writer of JSON text that escapes control characters and characters that
// reorder text (Unicode's Bidi_Control). A terminal could act on these. In valid JSON they occur
// only within strings, so the text means the same. The writer holds back an incomplete character
// at the end.
func PlainJSON(w io.Writer) io.Writer { return &jsonEscaper{to: w} }

type jsonEscaper struct {
	to   io.Writer
	held []byte // the beginning of a character that the next write completes
}

func (e *jsonEscaper) Write(text []byte) (int, error) {
	in := slices.Concat(e.held, text)
	out := make([]byte, 0, len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		r, size := utf8.DecodeRune(in)
		if steersTerminal(r) && r != '\n' && r != '\t' && r != '\r' {
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		} else {
			out = append(out, in[:size]...)
		}
		in = in[size:]
	}
	e.held = append([]byte(nil), in...)
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// steersTerminal reports whether a terminal may act on the character instead of showing it.
func steersTerminal(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
