package modelsim

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxSchemaDepth = 8
	maxPairs       = 1000
	// maxOptionalDepth is where objects end that may be null, as the nodes of a tree are.
	maxOptionalDepth = 2
	maxValues        = 1000 // of one answer: references can name each other
)

// structured fills the response schema from the document. A property gets its value from a "Name:
// value" line, or from a task such as a summary or a label. Else it gets an entity of the type
// that its name suggests.
func (a ask) structured() string {
	f := filler{ask: a, pairs: pairs(a.document)}
	for f.maxItems = maxEntities; ; f.maxItems /= 2 { // shorter lists until the answer fits
		f.values = 0
		v, _ := f.value(a.schema, "", 0)
		if text := encode(v); f.maxItems == 0 || countTokens(text) <= a.maxTokens {
			return text
		}
	}
}

type filler struct {
	ask
	pairs    map[string]string
	found    []entity
	searched bool
	maxItems int // of any list
	values   int // written so far
}

func (f *filler) entities() []entity {
	if !f.searched {
		f.found, f.searched = entities(f.document), true
	}
	return f.found
}

// value returns a value that fits the schema, and whether the document has one.
func (f *filler) value(schema map[string]any, name string, depth int) (any, bool) {
	if f.values++; depth > maxSchemaDepth || f.values > maxValues {
		return nil, false
	}
	schema, nullable := f.resolve(schema)
	kind, null := schemaType(schema)
	nullable = nullable || null
	if v, fixed := f.choose(schema); fixed {
		f.values += len(encode(v)) / 16 // a large one that is referred to often counts as many
		return v, true
	}
	var v any
	var ok bool
	switch kind {
	case "object":
		if nullable && depth > maxOptionalDepth {
			return nil, false
		}
		return f.object(schema, depth), true
	case "array":
		return f.list(schema, name, depth), true
	case "number", "integer":
		var n float64
		n, ok = f.number(name)
		if n = inRange(schema, n, kind == "integer"); kind == "integer" {
			v = int64(max(-1e15, min(1e15, n)))
		} else {
			v = n
		}
	case "boolean":
		text := strings.ToLower(f.pairs[fold(name)])
		_, ok = f.pairs[fold(name)]
		v = text == "yes" || text == "true" || text == "1"
	default:
		if format, _ := schema["format"].(string); examples[format] != "" {
			v = examples[format]
			break
		}
		v, ok = f.text(name)
	}
	if !ok && nullable {
		return nil, false
	}
	return v, ok
}

func (f *filler) object(schema map[string]any, depth int) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required := stringList(schema["required"])
	if properties == nil && depth == 0 && schema["additionalProperties"] != false { // any object will do
		switch f.work {
		case workExtract:
			out["entities"] = f.entities()[:min(f.maxItems, len(f.entities()))]
		case workSentiment:
			m := sentimentOf(f.document)
			out["sentiment"], out["score"] = m.label, m.score
		case workSummarize:
			out["summary"], _ = f.text("summary")
		default:
			out["reply"], _ = f.text("reply")
		}
	}
	for name, property := range properties {
		s, ok := property.(map[string]any)
		if !ok {
			continue
		}
		v, found := f.value(s, name, depth+1)
		if found || slices.Contains(required, name) {
			out[name] = v
		}
	}
	return out
}

func (f *filler) list(schema map[string]any, name string, depth int) []any {
	out := []any{}
	items, _ := schema["items"].(map[string]any)
	items, _ = f.resolve(items)
	kind, _ := schemaType(items)
	add := func(v any) {
		if len(out) < f.maxItems {
			out = append(out, v)
		}
	}
	switch options := stringList(items["enum"]); {
	case len(options) > 0:
		ranking := classify(f.document, options)
		for i, s := range ranking {
			if i == 0 || s.score > 0.4*ranking[0].score {
				add(s.label)
			}
		}
	case kind == "object":
		properties, _ := items["properties"].(map[string]any)
		for _, e := range f.entities() {
			if record, ok := entityRecord(properties, e, name); ok {
				add(record)
			}
		}
	case kind == "string":
		if typ := entityType(name); typ != "" {
			for _, e := range f.entities() {
				if e.Type == typ {
					add(e.Text)
				}
			}
		} else if line, ok := f.pairs[fold(name)]; ok {
			for part := range strings.SplitSeq(line, ",") {
				add(strings.TrimSpace(part))
			}
		} else {
			for _, t := range keyTerms(f.document, 8) {
				add(t)
			}
		}
	}
	least, _ := schema["minItems"].(float64)
	for len(out) < min(int(least), maxEntities) {
		v, _ := f.value(items, name, depth+1)
		out = append(out, v)
	}
	return out
}

// entityRecord writes an entity as an object with a property for its text, and maybe one for its
// type.
func entityRecord(properties map[string]any, e entity, list string) (map[string]any, bool) {
	out := map[string]any{}
	if want := entityType(list); want != "" && want != e.Type {
		return nil, false
	}
	named := false
	for property, s := range properties {
		schema, _ := s.(map[string]any)
		switch fold(property) {
		case "type", "kind", "category", "label":
			out[property] = e.Type
			if options := stringList(schema["enum"]); len(options) > 0 && !slices.Contains(options, e.Type) {
				return nil, false
			}
		case "text", "name", "value", "entity":
			out[property], named = e.Text, true
		}
	}
	return out, named && len(out) == len(properties)
}

func (f *filler) text(name string) (string, bool) {
	key := fold(name)
	if v, ok := f.pairs[key]; ok {
		return v, true
	}
	switch key {
	case "summary", "abstract", "description", "gist":
		return summarize(f.document, f.maxTokens*3/4, f.maxWords, f.focus), true
	case "sentiment", "tone", "polarity":
		return sentimentOf(f.document).label, true
	case "label", "category", "topic", "class":
		labels := f.labels
		if len(labels) == 0 {
			labels = commonLabels
		}
		return classify(f.document, labels)[0].label, true
	case "reply", "answer", "response", "message", "text":
		return reply(f.document, f.maxTokens*3/4), true
	case "title", "subject", "headline":
		if list := sentences(clip(f.document, 16<<10)); len(list) > 0 {
			return cutWords(list[0], 12), true
		}
	}
	if typ := entityType(name); typ != "" {
		for _, e := range f.entities() {
			if e.Type == typ {
				return e.Text, true
			}
		}
	}
	return "", false
}

var numeral = lazy(`-?\d[\d,]{0,18}(?:\.\d{1,15})?`)

func (f *filler) number(name string) (float64, bool) {
	key := fold(name)
	text, ok := f.pairs[key]
	if !ok && (key == "score" || key == "sentiment_score" || key == "polarity") {
		return sentimentOf(f.document).score, true
	}
	if typ := entityType(name); !ok && (typ == "money" || typ == "percent") {
		text, _ = f.text(name)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(numeral().FindString(text), ",", ""), 64)
	return n, err == nil
}

// entityType says which type of entity a property of that name holds, or "".
func entityType(name string) string {
	key := fold(name)
	for _, part := range append([]string{key}, strings.Split(key, "_")...) {
		if typ, ok := propertyTypes[strings.TrimSuffix(part, "s")]; ok {
			return typ
		}
	}
	return ""
}

var propertyTypes = map[string]string{
	"person": "person", "people": "person", "author": "person", "customer": "person", "client": "person", "sender": "person",
	"organization": "organization", "organisation": "organization", "company": "organization", "companie": "organization", "vendor": "organization", "supplier": "organization",
	"location": "location", "place": "location", "city": "location", "citie": "location", "country": "location", "countrie": "location",
	"date": "date", "day": "date", "due": "date", "year": "date",
	"money": "money", "amount": "money", "price": "money", "total": "money", "cost": "money",
	"percent": "percent", "percentage": "percent", "rate": "percent",
	"email": "email", "url": "url", "link": "url", "website": "url", "phone": "phone", "telephone": "phone",
}

// pairs reads lines such as "Invoice number: 4711". The first line of a name counts.
func pairs(document string) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(document, "\n") {
		if len(out) == maxPairs {
			break
		}
		at := strings.IndexByte(clip(line, 48), ':')
		if at < 1 {
			continue
		}
		key, value := fold(line[:at]), strings.TrimSpace(clip(line[at+1:], 500))
		if _, ok := out[key]; key != "" && value != "" && !strings.HasPrefix(value, "//") && !ok {
			out[key] = value
		}
	}
	return out
}

// fold writes a name in lower case with single underscores between its words. So "Invoice number",
// "invoiceNumber" and "invoice_number" are the same.
func fold(name string) string {
	var b strings.Builder
	previous := '_'
	for _, r := range clip(name, 200) {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = '_'
		}
		if r == '_' && previous == '_' {
			continue
		}
		if unicode.IsUpper(r) && unicode.IsLower(previous) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		previous = r
	}
	return strings.TrimSuffix(b.String(), "_")
}

// schemaType returns the first type a schema allows that is not null, and whether null is allowed.
func schemaType(schema map[string]any) (kind string, nullable bool) {
	switch t := schema["type"].(type) {
	case string:
		return t, t == "null"
	case []any:
		for _, v := range t {
			s, _ := v.(string)
			if s == "null" {
				nullable = true
			} else if kind == "" {
				kind = s
			}
		}
		return kind, nullable
	}
	if schema["properties"] != nil {
		return "object", false
	}
	if schema["items"] != nil {
		return "array", false
	}
	return "", false
}

// stringList returns the strings of a JSON list.
func stringList(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok && len(out) < maxLabels {
			out = append(out, s)
		}
	}
	return out
}
