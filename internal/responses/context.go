package responses

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Bounds of what may go before a request: responses, and what is read of them for each byte that a
// request may have.
const (
	maxChain = 1000
	maxRead  = 4
)

var (
	errTooLong  = &bridge.Error{Param: "previous_response_id", Code: "context_length_exceeded", Message: "The conversation has become too long to go on from its responses."}
	errTooLarge = &bridge.Error{Param: "input", Code: "context_length_exceeded", Message: "The items that the request refers to are too large together."}
)

// Complete finds what goes before a request's input: the inputs and outputs of the responses that
// it goes on from, oldest first, unless these are known. Items that only refer to others become
// those. Compactions become what they stand for. Parts that name files get their contents.
func (s *Service) Complete(ctx context.Context, tenant string, req *bridge.Request) error {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	var parts [][]json.RawMessage
	items, size, read := len(req.Input), int64(0), int64(0)
	if req.Known != nil {
		items += len(req.Known)
		for _, item := range req.Known {
			size += int64(len(item))
		}
		if items > bridge.MaxItems || size > s.MaxBody {
			return errTooLong
		}
		parts = append(parts, req.Known)
	}
	for id, depth := req.Previous, 0; id != "" && req.Known == nil; depth++ {
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
	references := resolver{Service: s, tenant: no, known: map[string]json.RawMessage{}, room: s.MaxBody - size, unread: maxRead*s.MaxBody - read, loads: maxChain}
	references.learn(req.Context)
	named := fileReader{files: s.Files, tenant: tenant, left: s.MaxBody}
	for _, list := range [][]json.RawMessage{req.Context, req.Input} {
		for i := range list {
			if list[i], err = references.resolved(ctx, list[i]); err != nil {
				return err
			}
			if list[i], err = s.unsealed(ctx, no, list[i]); err != nil {
				return err
			}
			req.Plain = append(req.Plain, list[i])
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
	if err := memory.Grow(ctx, int64(len(row.Request.Inline)+len(row.Object.Inline))); err != nil { // blobs count as they are read
		return nil, err
	}
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

// resolver finds the items that others refer to. Many may refer to the same one, so their sizes
// count each time.
type resolver struct {
	*Service
	tenant int64
	known  map[string]json.RawMessage // by id
	room   int64                      // bytes that the request may still take
	unread int64                      // bytes of responses that may still be read
	loads  int                        // responses that may still be read
}

// Referred returns items with those that they refer to in their place. A reference to what is
// gone, or is too large, stays one.
func (s *Service) Referred(ctx context.Context, tenant string, items []json.RawMessage) ([]json.RawMessage, error) {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	references := resolver{Service: s, tenant: no, known: map[string]json.RawMessage{}, room: s.MaxBody, unread: maxRead * s.MaxBody, loads: len(items)}
	list := make([]json.RawMessage, len(items))
	for i, item := range items {
		list[i], err = references.resolved(ctx, item)
		if _, refused := errors.AsType[*bridge.Error](err); refused {
			list[i], err = item, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// learn remembers items by their ids.
func (r *resolver) learn(items []json.RawMessage) {
	for _, item := range items {
		if id := gjson.GetBytes(item, "id").Str; id != "" && gjson.GetBytes(item, "type").Str != "item_reference" {
			r.known[id] = item
		}
	}
}

// resolved returns an item, or the one that it refers to.
func (r *resolver) resolved(ctx context.Context, item json.RawMessage) (json.RawMessage, error) {
	if gjson.GetBytes(item, "type").Str != "item_reference" {
		return item, nil
	}
	id := gjson.GetBytes(item, "id").Str
	if _, ok := r.known[id]; !ok {
		if err := r.load(ctx, bridge.ResponseOf(id)); err != nil {
			return nil, err
		}
	}
	other, ok := r.known[id]
	if !ok {
		return nil, &bridge.Error{Param: "input", Code: "item_not_found", Message: "Item with id '" + cut(id) + "' not found."}
	}
	if r.room -= int64(len(other)); r.room < 0 {
		return nil, errTooLarge
	}
	return other, memory.Grow(ctx, int64(len(other)))
}

// load learns the items of a response, if there is one.
func (r *resolver) load(ctx context.Context, id string) error {
	if !knownID(id) {
		return nil
	}
	row, err := r.Store.Response(ctx, r.tenant, id)
	if err != nil {
		if forebay.CodeOf(err) == forebay.CodeNotFound {
			return nil
		}
		return err
	}
	r.loads--
	if r.unread -= row.Request.Size + row.Object.Size; r.unread < 0 || r.loads < 0 {
		return errTooLarge
	}
	items, err := r.said(ctx, row)
	if err == nil {
		r.learn(items)
	}
	return err
}
