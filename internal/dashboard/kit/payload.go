package kit

import (
	"io"
	"net/url"
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
	whole := len(data) <= previewBytes
	if whole {
		return Preview{JSON(data), true}, nil
	}
	for data = data[:previewBytes]; len(data) > 0 && !utf8.Valid(data[max(0, len(data)-utf8.UTFMax):]) && !utf8.RuneStart(data[len(data)-1]); {
		data = data[:len(data)-1]
	}
	return Preview{Clean(string(data)), false}, nil
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
