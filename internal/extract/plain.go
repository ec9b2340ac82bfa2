package extract

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/forebayhq/forebay"
)

// decode converts a text to UTF-8. A byte order mark decides the encoding, else the declared
// charset; without either, the bytes must be UTF-8. It does not guess, because a wrong guess
// would be indexed as the document's text.
func decode(data []byte, charset string) (string, error) {
	var from encoding.Encoding
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		data = data[3:]
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		from = unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM)
	case charset != "" && !strings.EqualFold(charset, "utf-8"):
		declared, err := htmlindex.Get(charset)
		if err != nil {
			return "", forebay.Errorf(forebay.CodeDocumentEncoding, "there is no charset %.40q", charset)
		}
		from = declared
	}
	if most := MaxTextBytes; len(data) > 2*most || from == nil && len(data) > most {
		return "", errLong // two bytes of another charset are one of UTF-8 at least
	}
	if from != nil {
		decoded, err := from.NewDecoder().Bytes(data)
		if err != nil {
			return "", forebay.Errorf(forebay.CodeDocumentEncoding, "the document is not in the charset that it declares")
		}
		data = decoded
	}
	if !utf8.Valid(data) {
		return "", forebay.Errorf(forebay.CodeDocumentEncoding, "the document is not UTF-8; declare its charset in the content type")
	}
	return clean(string(data))
}

// maxControls is how many characters a text must have for each control character.
const maxControls = 100

// clean ends lines with a line feed alone and drops control characters. It refuses data with too
// many of them.
func clean(s string) (string, error) {
	if len(s) > MaxTextBytes {
		return "", errLong
	}
	cleaned, controls := printable(strings.ReplaceAll(s, "\r\n", "\n"))
	if controls > 0 && controls*maxControls > len(s) {
		return "", forebay.Errorf(forebay.CodeDocumentEncoding, "the document holds bytes that are no text")
	}
	return cleaned, nil
}

// printable returns a text without control characters but line feed and tab, and how many it has
// dropped. Some end a line.
func printable(s string) (text string, controls int) {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && r != '\uFEFF':
			return r
		case r == '\v' || r == '\f' || r == '\r':
			return '\n'
		case r == '\uFEFF' || r == '\u007f':
			return -1
		}
		controls++
		return -1
	}, s)
	return text, controls
}
