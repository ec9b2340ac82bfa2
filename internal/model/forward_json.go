package model

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// jsonMember is a member of an object in JSON text, by offsets. Its key begins at from, and its
// value is from at to end.
type jsonMember struct {
	key           string
	from, at, end int
}

// is reports whether the value is this literal.
func (m jsonMember) is(b []byte, literal string) bool { return string(b[m.at:m.end]) == literal }

// membersOf lists the members of the object at b[at]. The text must be valid JSON. It decodes no
// value and takes no recursion, so a large or deep value costs little.
func membersOf(b []byte, at int) iter.Seq[jsonMember] {
	return func(yield func(jsonMember) bool) {
		for i := skipSpace(b, at+1); i < len(b) && b[i] == '"'; {
			m := jsonMember{from: i}
			i = valueEnd(b, i)
			m.key = memberName(b[m.from:i])
			m.at = skipSpace(b, skipSpace(b, i)+1) // after the colon
			m.end = valueEnd(b, m.at)
			if !yield(m) {
				return
			}
			if i = skipSpace(b, m.end); i < len(b) && b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
	}
}

// elementsOf lists where the elements of the array at b[at] begin and end, in valid JSON.
func elementsOf(b []byte, at int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := skipSpace(b, at+1); i < len(b) && b[i] != ']'; {
			end := valueEnd(b, i)
			if !yield(i, end) {
				return
			}
			if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
	}
}

// memberName decodes a key.
func memberName(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is valid
	return name
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// valueEnd returns where the value that begins at i ends.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		default:
			if i++; depth > 0 {
				continue
			}
			for i < len(b) && bytes.IndexByte([]byte(",]} \n\r\t"), b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return len(b)
}

// stringEnd returns the offset after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for from := i + 1; from < len(b); {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			break
		}
		quote, escapes := from+n, 0
		for escapes < n && b[quote-1-escapes] == '\\' {
			escapes++
		}
		if from = quote + 1; escapes%2 == 0 {
			return from
		}
	}
	return len(b)
}

// objectStart returns where the object begins that b consists of, or -1 if b is no JSON object.
func objectStart(b []byte) int {
	if at := skipSpace(b, 0); at < len(b) && b[at] == '{' && jsoncheck.Valid(b) {
		return at
	}
	return -1
}

// splice replaces the bytes from at to end by a text.
type splice struct {
	at, end int
	text    string
}

// spliced returns a copy of b with all the replacements, which must be in order.
func spliced(b []byte, list []splice) []byte {
	size := len(b)
	for _, s := range list {
		size += len(s.text) - (s.end - s.at)
	}
	out, from := make([]byte, 0, size), 0
	for _, s := range list {
		out = append(append(out, b[from:s.at]...), s.text...)
		from = s.end
	}
	return append(out, b[from:]...)
}

// insertion adds members at the beginning of the object at b[at].
func insertion(b []byte, at int, members ...string) splice {
	text := strings.Join(members, ",")
	if text != "" && b[skipSpace(b, at+1)] != '}' {
		text += ","
	}
	return splice{at + 1, at + 1, text}
}

const (
	includeUsage  = `"include_usage":true`
	streamUsage   = `{` + includeUsage + `}`
	streamOption  = "stream_options"
	streamOptionM = `"` + streamOption + `":` + streamUsage
)

// forwardedBody returns a request's body with the deployment's model. All other bytes stay. If
// addUsage, it also asks for the usage at the end of the stream; added reports that the client had
// not asked. The object must begin at b[start].
//
// Each of several members "model" is replaced, since servers differ in which one they take. So is
// "Model", because servers written in Go match names in any case.
func forwardedBody(b []byte, start int, model string, addUsage bool) (body []byte, added bool) {
	name, err := forebay.EncodeJSON(model)
	if err != nil { // never: it is a string
		return b, false
	}
	edits := []splice{{}} // the first is the insertion
	named, optioned := false, false
	for m := range membersOf(b, start) {
		switch {
		case strings.EqualFold(m.key, "model"):
			named = named || m.key == "model"
			edits = append(edits, splice{m.at, m.end, string(name)})
		case addUsage && m.key == streamOption:
			optioned = true
			var more []splice
			more, added = askUsage(b, m)
			edits = append(edits, more...)
		}
	}
	var missing []string
	if !named {
		missing = append(missing, `"model":`+string(name))
	}
	if addUsage && !optioned {
		added = true
		missing = append(missing, streamOptionM)
	}
	edits[0] = insertion(b, start, missing...)
	return spliced(b, edits), added
}

// askUsage makes the member stream_options ask for the usage. added is false if it did so already,
// or if it has a type that no server accepts.
func askUsage(b []byte, options jsonMember) (edits []splice, added bool) {
	if options.is(b, "null") {
		return []splice{{options.at, options.end, streamUsage}}, true
	}
	if b[options.at] != '{' {
		return nil, false
	}
	found := false
	for m := range membersOf(b, options.at) {
		if m.key != "include_usage" {
			continue
		}
		found = true
		if added = m.is(b, "false") || m.is(b, "null"); added {
			edits = append(edits, splice{m.at, m.end, "true"})
		}
	}
	if !found {
		return []splice{insertion(b, options.at, includeUsage)}, true
	}
	return edits, added
}

// withoutNullUsage returns a chunk without its member "usage":null, which comes only to those who
// asked for the usage. Chunks without it are returned as they are.
func withoutNullUsage(b []byte, start int) []byte {
	before := -1 // where the previous member ends
	cut := splice{at: -1}
	for m := range membersOf(b, start) {
		if cut.at >= 0 { // it was the first member
			cut.end = m.from
			break
		}
		if m.key == "usage" && m.is(b, "null") {
			if cut = (splice{at: m.from, end: m.end}); before >= 0 {
				cut.at = before
				break
			}
		}
		before = m.end
	}
	if cut.at < 0 {
		return b
	}
	return spliced(b, []splice{cut})
}
