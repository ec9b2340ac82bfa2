package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// items reads a list that has only one page.
func items[T any](ctx context.Context, e *endpoint, path string) ([]T, error) {
	var page forebay.Page[T]
	err := e.call(ctx, request{method: http.MethodGet, path: path}, &page)
	return page.Items, err
}

// pages yields the items of all pages of a list.
func pages[T any](ctx context.Context, e *endpoint, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			var page forebay.Page[T]
			if err := e.call(ctx, request{method: http.MethodGet, path: path, query: query}, &page); err != nil {
				yield(zero, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == query.Get("cursor") {
				yield(zero, errNotForebay)
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	}
}

func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, err)
	}
}

// setPage adds the page and the bounds of creation time to a query.
func setPage(query url.Values, after, before *time.Time, limit int, cursor string) {
	for name, at := range map[string]*time.Time{"created_after": after, "created_before": before} {
		if at != nil {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	set(query, "cursor", cursor)
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func setTime(query url.Values, name string, t time.Time) {
	if !t.IsZero() {
		query.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}
