package kit

import (
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// maxProblemBytes bounds the part of an error's answer that is read.
const maxProblemBytes = 64 << 10

// Payload reads a payload by the API. The caller closes the answer's body.
func (r *Request) Payload(path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, inProcessURL+path, nil)
	if err != nil {
		return nil, forebay.Invalid("address", "cannot be used").Caused(err)
	}
	resp, err := r.calls.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	var problem struct {
		Code   forebay.Code `json:"code"`
		Detail string       `json:"detail"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	if err != nil || json.Unmarshal(data, &problem) != nil || problem.Code == "" {
		return nil, forebay.Errorf(forebay.CodeInternal, "the API answered with status %d", resp.StatusCode).Caused(err)
	}
	return nil, &forebay.Error{Code: problem.Code, Message: problem.Detail}
}

// Preview is the beginning of a payload.
type Preview struct {
	Text  string // control characters are replaced
	Whole bool
}

// Beginning reads the beginning of a payload.
func (r *Request) Beginning(path string) (Preview, error) {
	resp, err := r.Payload(path)
	if err != nil {
		return Preview{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, previewBytes+1))
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
func (r *Request) Download(path, name string) error {
	resp, err := r.Payload(path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return r.AttachFrom(name, resp.Body)
}
