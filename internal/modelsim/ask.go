package modelsim

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// work is what a request asks for.
type work int

const (
	workReply work = iota
	workSummarize
	workClassify
	workSentiment
	workExtract
)

// ask is a request as the model understands it.
type ask struct {
	work      work
	document  string
	labels    []string
	focus     string
	maxWords  int // 0: not said
	maxTokens int
	schema    map[string]any // of structured output; nil: none
	json      bool           // the words ask for JSON
}

var (
	workWords = []struct {
		work  work
		words func() *regexp.Regexp
	}{
		{workSummarize, lazy(`(?i)\b(summari[sz]e|summar(y|ies)|condense|tl;?dr)\b`)},
		{workClassify, lazy(`(?i)\b(classif(y|ication|ies)|categori[sz]e|labels?)\b`)},
		{workSentiment, lazy(`(?i)\b(sentiment|polarity)\b`)},
		{workExtract, lazy(`(?i)\b(extract|named entit(y|ies)|entities)\b`)},
	}
	command  = lazy(`(?i)^\s*(please\s+|can you\s+|could you\s+)*(summari[sz]e|condense|tl;?dr|classify|categori[sz]e|extract|what is the sentiment|analy[sz]e the sentiment)\b`)
	wordsAsk = lazy(`(?i)\b(?:at most|no more than|up to|under|within|maximum of|in)\s+(\d{1,6})\s+words`)
	focusAsk = lazy(`(?i)\bfocus(?:ing)? on:?\s+([^\n.]{1,400})`)
	jsonAsk  = lazy(`(?i)\bjson\b`)
	inline   = lazy(`(?im)\b(?:labels|categories|classes)\b[^:\n]{0,60}:[ \t]*([^\n]+)$`)
	heading  = lazy(`(?im)\b(?:labels|categories|classes)\b[^:\n]{0,60}:[ \t]*$`)
)

const (
	documentOpen  = "<document>"
	documentClose = "</document>"
	maxLabels     = 1000
)

// understand works out what is asked, from the schema and from the instructions. Instructions
// are the system messages, and the text around the document in the last user message.
func understand(req model.ChatRequest) (ask, error) {
	a := ask{maxTokens: req.MaxOutputTokens}
	if req.JSONObject {
		req.JSONSchema = json.RawMessage(`{"type":"object"}`)
	}
	if len(req.JSONSchema) > 0 {
		if err := json.Unmarshal(req.JSONSchema, &a.schema); err != nil || a.schema == nil {
			return ask{}, forebay.Permanent(model.CodeBadRequest, "the response schema is not a JSON object")
		}
	}
	var system strings.Builder
	var user string
	for _, m := range req.Messages {
		if m.Role == model.RoleSystem {
			system.WriteString(clip(m.Content, contextBytes))
			system.WriteByte('\n')
		}
		if m.Role == model.RoleUser {
			user = m.Content
		}
	}
	around, document, delimited := splitDocument(user)
	if !delimited {
		around = ""
		if command().MatchString(clip(user, 200)) {
			around, document = splitCommand(user)
		}
	}
	a.document = clip(document, contextBytes)
	instructions := system.String() + clip(around, contextBytes)

	a.labels = findLabels(instructions)
	a.json = jsonAsk().MatchString(instructions)
	if m := wordsAsk().FindStringSubmatch(instructions); m != nil {
		a.maxWords, _ = strconv.Atoi(m[1]) // at most six digits
	}
	if m := focusAsk().FindStringSubmatch(instructions); m != nil {
		a.focus = strings.TrimSpace(m[1])
	}
	first := len(instructions) + 1
	for _, w := range workWords {
		if at := w.words().FindStringIndex(instructions); at != nil && at[0] < first {
			a.work, first = w.work, at[0]
		}
	}
	if a.work == workClassify && len(a.labels) == 0 && workWords[2].words().MatchString(instructions) {
		a.work = workSentiment // "classify the sentiment"
	}
	return a, nil
}

// splitDocument splits a message at its outermost document tags.
func splitDocument(message string) (around, document string, delimited bool) {
	open := strings.Index(message, documentOpen)
	end := strings.LastIndex(message, documentClose)
	if open < 0 || end < open+len(documentOpen) {
		return "", message, false
	}
	return message[:open] + "\n" + message[end+len(documentClose):],
		strings.TrimSpace(message[open+len(documentOpen) : end]), true
}

// splitCommand splits a message such as "Summarize this: …" after its first line or colon.
func splitCommand(message string) (around, document string) {
	at := strings.IndexAny(message, ":\n")
	if at < 0 || strings.TrimSpace(message[at+1:]) == "" {
		loc := command().FindStringIndex(message)
		return message[:loc[1]], strings.TrimSpace(message[loc[1]:])
	}
	return message[:at+1], strings.TrimSpace(message[at+1:])
}

// findLabels reads "Labels: a, b, c" or "Labels:" with an item on each line after it.
func findLabels(instructions string) []string {
	if m := inline().FindStringSubmatch(instructions); m != nil {
		var labels []string
		for part := range strings.SplitSeq(m[1], ",") {
			if label := strings.Trim(part, " \t\"'`.;"); label != "" && len(labels) < maxLabels {
				labels = append(labels, strings.TrimSpace(strings.TrimPrefix(label, "or ")))
			}
		}
		return labels
	}
	at := heading().FindStringIndex(instructions)
	if at == nil {
		return nil
	}
	var labels []string
	for line := range strings.SplitSeq(strings.TrimLeft(instructions[at[1]:], "\r\n"), "\n") {
		item, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !ok || len(labels) == maxLabels {
			break
		}
		labels = append(labels, strings.TrimSpace(item))
	}
	return labels
}
