package documents

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/extract"
)

// describeSchema is what is asked about a document.
var describeSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["title","language","entities"],"properties":{
"title":{"type":"string","description":"the document's title, or a short one that fits"},
"language":{"type":"string","description":"the language it is written in, as a BCP 47 tag such as en or de-AT"},
"entities":{"type":"array","description":"the most important ones, 30 at most","items":{"type":"object","additionalProperties":false,"required":["type","text"],"properties":{
"type":{"type":"string","enum":["person","organization","location","date","money","other"]},"text":{"type":"string"}}}}}}`)

// Limits on what a model says about a document.
const (
	maxEntities    = 50
	maxEntityBytes = 200
)

func (s *Service) runMetadata(ctx context.Context, call forebay.TaskCall) (res forebay.TaskResult, err error) {
	w, gone, err := s.begin(ctx, call)
	if err != nil || gone {
		return forebay.TaskResult{Output: outputGone}, err
	}
	var found Described
	if extract := s.calls.Load().Extract; extract != nil && !w.rev.Described {
		if call.Input, err = s.describeInput(ctx, w.rev); err != nil {
			return res, failure(err)
		}
		if res, err = extract.Run(ctx, call); err != nil {
			return res, err
		}
		found = described(res.Output, w.rev)
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	err = s.Store.RecordMetadata(recording, w.rev, call.JobID, found)
	if forebay.CodeOf(err) == forebay.CodeGone {
		res.Output = outputGone
		return res, nil
	}
	s.wake() // it may be ready
	res.Output = said(map[string]bool{"described": true})
	return res, failure(err)
}

// describeInput is the beginning of a document and what to find out.
func (s *Service) describeInput(ctx context.Context, rev Revision) (json.RawMessage, error) {
	const chunks = 32
	first, err := s.Store.Texts(ctx, rev.No, chunks)
	if err != nil {
		return nil, err
	}
	text := strings.Join(first, "\n\n")
	if most := describeTokens * forebay.BytesPerToken; len(text) > most {
		for !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return json.Marshal(map[string]any{"text": text, "schema": describeSchema})
}

// described takes of an answer what is of use. What the document says of itself counts for more.
func described(output json.RawMessage, rev Revision) (d Described) {
	var answer struct {
		Title    string                   `json:"title"`
		Language string                   `json:"language"`
		Entities []forebay.DocumentEntity `json:"entities"`
	}
	_ = json.Unmarshal(output, &answer) // the task has checked it; what it lets pass may be empty
	if rev.Title == "" {
		d.Title = short(answer.Title, extract.MaxTitleBytes)
	}
	if rev.Language == "" {
		d.Language = extract.Language(answer.Language)
	}
	kept := []forebay.DocumentEntity{}
	seen := map[forebay.DocumentEntity]bool{}
	for _, e := range answer.Entities {
		e = forebay.DocumentEntity{Type: short(e.Type, forebay.MaxNameBytes), Text: short(e.Text, maxEntityBytes)}
		if e.Text != "" && !seen[e] && len(kept) < maxEntities {
			seen[e] = true
			kept = append(kept, e)
		}
	}
	d.Entities = said(kept)
	return d
}

// short is a text on one line, of so many bytes at most.
func short(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")), " ")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
