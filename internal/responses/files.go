package responses

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// fileReader puts the contents of a tenant's files into a request: no provider knows their ids.
type fileReader struct {
	files  *files.Service
	tenant string
	left   int64 // bytes that the request may still take
}

// put returns an item with the contents of the files that its parts name.
func (f *fileReader) put(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(`"file_id"`)) {
		return raw, nil
	}
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, err
	}
	changed := false
	for _, name := range []string{"content", "output"} {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(item[name], &parts) != nil {
			continue // a text
		}
		for _, part := range parts {
			put, err := f.putPart(ctx, part)
			if err != nil {
				return nil, err
			}
			changed = changed || put
		}
		item[name] = encode(parts)
	}
	if !changed {
		return raw, nil
	}
	return encode(item), nil
}

// putPart reports whether a part names a file, whose content it then has.
func (f *fileReader) putPart(ctx context.Context, part map[string]json.RawMessage) (bool, error) {
	var kind, id string
	_, named := part["file_id"]
	if !named || json.Unmarshal(part["type"], &kind) != nil || json.Unmarshal(part["file_id"], &id) != nil || id == "" {
		return false, nil
	}
	member := map[string]string{"input_file": "file_data", "input_image": "image_url"}[kind]
	if member == "" {
		return false, nil
	}
	content, file, err := f.files.Content(ctx, f.tenant, id)
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		return false, &bridge.Error{Param: "input", Code: "invalid_value", Message: "No such File object: " + cut(id)}
	}
	if err != nil {
		return false, err
	}
	defer content.Close()
	size := int64(base64.StdEncoding.EncodedLen(int(file.Size)))
	if f.left -= size; f.left < 0 {
		return false, &bridge.Error{Param: "input", Code: "context_length_exceeded", Message: "The files of the request are too large together."}
	}
	if err := memory.Grow(ctx, 2*size); err != nil {
		return false, err
	}
	data, err := io.ReadAll(io.LimitReader(content, file.Size))
	if err != nil {
		return false, err
	}
	delete(part, "file_id")
	part[member] = encode("data:" + typeOf(file.Name, data) + ";base64," + base64.StdEncoding.EncodeToString(data))
	if _, given := part["filename"]; !given && kind == "input_file" {
		part["filename"] = encode(file.Name)
	}
	return true, nil
}

// typeOf returns the media type of a file, by its name or else by how it begins.
func typeOf(name string, data []byte) string {
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name)))
	if err != nil {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(data))
	}
	return kind
}
