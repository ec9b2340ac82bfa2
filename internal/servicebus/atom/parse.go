package atom

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// Limits on what clients send. A description of an entity with all that it may have is smaller.
const (
	maxBodyBytes = 256 << 10
	maxDepth     = 16
	maxElements  = 4096
	maxBodyTime  = 30 * time.Second
)

// entryInput is an entry with one description.
type entryInput struct {
	XMLName xml.Name `xml:"entry"`
	Title   string   `xml:"title"`
	Content struct {
		Queue        *description `xml:"QueueDescription"`
		Topic        *description `xml:"TopicDescription"`
		Subscription *description `xml:"SubscriptionDescription"`
		Rule         *ruleInput   `xml:"RuleDescription"`
	} `xml:"content"`
}

// readEntry reads the body of a PUT.
func readEntry(w http.ResponseWriter, r *http.Request) (e entryInput, err error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(maxBodyTime)); err == nil {
		defer control.SetReadDeadline(time.Time{})
	}
	if r.ContentLength > maxBodyBytes {
		return e, errBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return e, errBody
	case err != nil:
		return e, forebay.Errorf(forebay.CodeRequestTimeout, "the body did not arrive in time")
	}
	return parseEntry(body)
}

var errBody = forebay.Errorf(forebay.CodePayloadTooLarge, "the body has more than %d bytes", maxBodyBytes)

// parseEntry reads an entry.
func parseEntry(body []byte) (e entryInput, err error) {
	if err := checkXML(body); err != nil {
		return e, err
	}
	if err := xml.Unmarshal(body, &e); err != nil {
		return e, forebay.Errorf(forebay.CodeInvalidRequest, "the body is not an ATOM entry with a description of an entity")
	}
	return e, nil
}

// checkXML refuses what is not one small document of plain elements. A document type could declare
// entities, so there is none. The decoder expands only the five entities of XML itself.
func checkXML(body []byte) error {
	if !utf8.Valid(body) {
		return forebay.Errorf(forebay.CodeInvalidRequest, "the body must be XML in UTF-8")
	}
	decoder := xml.NewDecoder(bytes.NewReader(body))
	depth, elements, roots := 0, 0, 0
	for {
		token, err := decoder.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return forebay.Errorf(forebay.CodeInvalidRequest, "the body is not well-formed XML: %s", syntaxOf(err))
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				if roots++; roots > 1 {
					return forebay.Errorf(forebay.CodeInvalidRequest, "the body must be one XML document")
				}
			}
			if elements += 1 + len(token.Attr); depth > maxDepth || elements > maxElements {
				return forebay.Errorf(forebay.CodeInvalidRequest, "the body has more than %d levels, or more than %d elements and attributes", maxDepth, maxElements)
			}
		case xml.EndElement:
			if depth--; depth < 0 {
				return forebay.Errorf(forebay.CodeInvalidRequest, "the body closes an element that is not open")
			}
		case xml.Directive:
			return forebay.Errorf(forebay.CodeInvalidRequest, "the body must not have a document type")
		case xml.ProcInst:
			if token.Target != "xml" {
				return forebay.Errorf(forebay.CodeInvalidRequest, "the body must not have processing instructions")
			}
		}
	}
	return nil
}

// syntaxOf says what is wrong, without text of the body.
func syntaxOf(err error) string {
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("see line %d", syntax.Line)
	}
	return "it cannot be read"
}

// text is the trimmed text of an element, "" if there is none.
func text(element *string) string {
	if element == nil {
		return ""
	}
	return strings.TrimSpace(*element)
}
