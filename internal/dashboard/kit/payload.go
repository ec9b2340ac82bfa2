package kit

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Preview is the beginning of a payload.
type Preview struct {
	Text  string // control characters are replaced
	Whole bool
}

// Beginning reads the beginning of a payload.
func (r *Request) Beginning(path string) (Preview, error) {
	payload, err := r.Client.Open(r.Context(), path, nil)
	if err != nil {
		return Preview{}, err
	}
	defer payload.Close()
	data, err := io.ReadAll(io.LimitReader(payload, previewBytes+1))
	if err != nil {
		return Preview{}, err
	}
	return PreviewOf(data), nil
}

// PreviewOf is the beginning of a payload that is at hand.
func PreviewOf(data []byte) Preview {
	if len(data) <= previewBytes {
		return Preview{JSON(data), true}
	}
	for data = data[:previewBytes]; len(data) > 0 && !utf8.Valid(data[max(0, len(data)-utf8.UTFMax):]) && !utf8.RuneStart(data[len(data)-1]); {
		data = data[:len(data)-1]
	}
	return Preview{Clean(string(data)), false}
}

// Holds reports whether the page of a browser that fetches it again has an element already, by
// its id. A fetch for a refresh names those that it keeps as they are.
func (r *Request) Holds(id string) bool {
	return slices.Contains(strings.Fields(r.Header.Get("X-Refresh")), id)
}

// Download answers with a payload as a file to keep.
func (r *Request) Download(name, path string, query url.Values) error {
	payload, err := r.Client.Open(r.Context(), path, query)
	if err != nil {
		return err
	}
	defer payload.Close()
	return r.AttachFrom(name, payload)
}
