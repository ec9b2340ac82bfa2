package responses

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Bounds of what may go before a request: responses, and what is read of them for each byte that a
// request may have.
const (
	maxChain = 1000
	maxRead  = 4
)

var errTooLong = &bridge.Error{Param: "previous_response_id", Code: "context_length_exceeded", Message: "The conversation has become too long to go on from its responses."}

// Complete finds what goes before a request's input: the inputs and outputs of the responses that
// it goes on from, oldest first. Items that only refer to others become those. Parts that name
// files get their contents.
func (s *Service) Complete(ctx context.Context, tenant string, req *bridge.Request) error {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	var parts [][]json.RawMessage
	items, size, read := len(req.Input), int64(0), int64(0)
	for id, depth := req.Previous, 0; id != ""; depth++ {
		row, err := s.before(ctx, no, id, req.Previous)
		if err != nil {
			return err
		}
		if read += row.Request.Size + row.Object.Size; read > maxRead*s.MaxBody {
			return errTooLong
		}
		part, err := s.said(ctx, row)
		if err != nil {
			return err
		}
		items += len(part)
		for _, item := range part {
			size += int64(len(item))
		}
		if depth >= maxChain || items > bridge.MaxItems || size > s.MaxBody {
			return errTooLong
		}
		parts, id = append(parts, part), row.Previous
	}
	slices.Reverse(parts)
	req.Context = slices.Concat(parts...)
	known := map[string]json.RawMessage{}
	for _, item := range req.Context {
		if id := gjson.GetBytes(item, "id").Str; id != "" && gjson.GetBytes(item, "type").Str != "item_reference" {
			known[id] = item
		}
	}
	named := fileReader{files: s.Files, tenant: tenant, left: s.MaxBody}
	for _, list := range [][]json.RawMessage{req.Context, req.Input} {
		for i := range list {
			if list[i], err = s.resolved(ctx, no, known, list[i]); err != nil {
				return err
			}
			if list[i], err = named.put(ctx, list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// before returns a response that goes before another. asked is the one that the client named.
func (s *Service) before(ctx context.Context, tenant int64, id, asked string) (row Row, err error) {
	err = forebay.ErrNotFound
	if knownID(id) {
		row, err = s.Store.Response(ctx, tenant, id)
	}
	switch {
	case forebay.CodeOf(err) == forebay.CodeNotFound && id == asked:
		return row, &bridge.Error{Param: "previous_response_id", Code: "previous_response_not_found", Message: "Previous response with id '" + cut(id) + "' not found."}
	case forebay.CodeOf(err) == forebay.CodeNotFound:
		return row, &bridge.Error{Param: "previous_response_id", Code: "previous_response_not_found", Message: "A response that the previous response goes on from was deleted or has expired."}
	case err == nil && !row.Over():
		return row, &bridge.Error{Param: "previous_response_id", Code: "previous_response_not_completed", Message: "The previous response is still in progress."}
	}
	return row, err
}

// cut shortens an id of a client that is repeated to it.
func cut(id string) string { return id[:min(len(id), 100)] }

// said returns the input and the output of a response.
func (s *Service) said(ctx context.Context, row Row) ([]json.RawMessage, error) {
	req, err := s.request(ctx, row)
	if err != nil {
		return nil, err
	}
	items := req.InputItems(row.ID)
	if !row.Answered() {
		return items, nil
	}
	object, err := s.Object(ctx, row)
	if err != nil {
		return nil, err
	}
	var o struct{ Output []json.RawMessage }
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, err
	}
	return append(items, o.Output...), nil
}

// resolved returns an item, or the one that it refers to.
func (s *Service) resolved(ctx context.Context, tenant int64, known map[string]json.RawMessage, item json.RawMessage) (json.RawMessage, error) {
	if gjson.GetBytes(item, "type").Str != "item_reference" {
		return item, nil
	}
	id := gjson.GetBytes(item, "id").Str
	if other, ok := known[id]; ok {
		return other, nil
	}
	if of := bridge.ResponseOf(id); knownID(of) {
		row, err := s.Store.Response(ctx, tenant, of)
		if err != nil && forebay.CodeOf(err) != forebay.CodeNotFound {
			return nil, err
		}
		if err == nil {
			items, err := s.said(ctx, row)
			if err != nil {
				return nil, err
			}
			for _, other := range items {
				if id := gjson.GetBytes(other, "id").Str; gjson.GetBytes(other, "type").Str != "item_reference" {
					known[id] = other
				}
			}
		}
	}
	if other, ok := known[id]; ok {
		return other, nil
	}
	return nil, &bridge.Error{Param: "input", Code: "item_not_found", Message: "Item with id '" + cut(id) + "' not found."}
}
