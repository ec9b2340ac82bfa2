package serving

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Client is an HTTP client that keeps a connection for each of its callers.
type Client struct{ *http.Client }

// NewClient returns a client without connections.
func NewClient() Client {
	return Client{&http.Client{Transport: &http.Transport{
		MaxIdleConns: 0, MaxIdleConnsPerHost: 1024, DisableCompression: true,
	}}}
}

// StatusError is an answer that is not a success.
type StatusError struct {
	Code       int
	RetryAfter string
	body       []byte
}

// Error has the beginning of the answer.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %.300s", e.Code, e.body) }

// PostBody posts the body and returns the whole answer.
func (c Client) PostBody(ctx context.Context, url, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	return c.Send(req)
}

// FirstEvent returns how long the first server-sent event of the answer took, of the post that
// asks for it, and reads the rest.
func (c Client) FirstEvent(ctx context.Context, url string, body []byte) (time.Duration, error) {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	_, err = r.ReadString('\n')
	first := time.Since(begun)
	if err == nil && resp.StatusCode >= 300 {
		err = &StatusError{Code: resp.StatusCode}
	}
	_, restErr := io.Copy(io.Discard, r)
	return first, errors.Join(err, restErr)
}

// get decodes a JSON answer into v.
func (c Client) get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	body, err := c.Send(req)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// Send returns the whole answer, or a StatusError.
func (c Client) Send(req *http.Request) ([]byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		return nil, &StatusError{resp.StatusCode, resp.Header.Get("Retry-After"), body}
	}
	return body, err
}
