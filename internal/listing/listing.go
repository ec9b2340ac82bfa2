// Package listing has what all lists have in common: page sizes, cursors and bounds of creation
// times. A list shows the newest rows first; its cursor names the number to continue below.
package listing

import (
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Numbered returns a page of a list that read gives below a number, newest first; below 0 it
// starts at the newest. number returns an item's number.
func Numbered[T any](limit int, cursor string, read func(below int64, limit int) ([]T, error), number func(*T) int64) (forebay.Page[T], error) {
	return Below(limit, cursor, func(below int64, limit int) (items []T, next int64, err error) {
		if items, err = read(below, limit); len(items) == limit {
			next = number(&items[limit-1])
		}
		return items, next, err
	})
}

// Below is Numbered for a list that returns itself the number to continue below; 0: it is
// complete.
func Below[T any](limit int, cursor string, read func(below int64, limit int) (items []T, next int64, err error)) (forebay.Page[T], error) {
	page := forebay.Page[T]{Items: []T{}}
	limit, err := PageSize(limit)
	if err != nil {
		return page, err
	}
	below, err := DecodeCursor(cursor)
	if err != nil {
		return page, err
	}
	items, next, err := read(below, limit)
	page.Items, page.NextCursor = append(page.Items, items...), EncodeCursor(next)
	return page, err
}

// PageSize checks how many items a caller asks for; 0 is the default.
func PageSize(limit int) (int, error) {
	switch {
	case limit == 0:
		return forebay.DefaultPageSize, nil
	case limit < 0 || limit > forebay.MaxPageSize:
		return 0, forebay.Invalid("limit", "is %d; it goes from 1 to %d", limit, forebay.MaxPageSize)
	}
	return limit, nil
}

// cursorVersion is a cursor's leading byte. The number to continue below follows it.
const cursorVersion = 1

// EncodeCursor returns the cursor of a list that continues below a number; "" for 0.
func EncodeCursor(seq int64) string {
	if seq == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(seq)))
}

// DecodeCursor is the inverse of EncodeCursor. Its error is CodeInvalidCursor.
func DecodeCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && len(b) == 9 && b[0] == cursorVersion {
		seq := int64(binary.BigEndian.Uint64(b[1:]))
		if seq > 0 && EncodeCursor(seq) == cursor {
			return seq, nil
		}
	}
	return 0, &forebay.Error{Code: forebay.CodeInvalidCursor, Field: "cursor", Message: "is not a cursor that a list returned"}
}

// Created checks the bounds of creation times and returns them in milliseconds; 0: unbounded.
func Created(after, before *time.Time) (from, until int64, err error) {
	for field, at := range map[string]*time.Time{"created_after": after, "created_before": before} {
		if at != nil && (at.Year() < 1970 || at.Year() > 9999) {
			return 0, 0, forebay.Invalid(field, "lies outside the years 1970 to 9999")
		}
	}
	if after != nil {
		from = after.UnixMilli()
	}
	if before != nil {
		until = max(before.UnixMilli(), 1)
	}
	return from, until, nil
}

// CreatedSlack is by how many milliseconds a row can be older than one with a lower number: clocks
// are set.
const CreatedSlack = 60_000

// Chronology reads a table whose rows were numbered in the order of their creation.
type Chronology struct {
	last, from string
	all        bool // of all tenants
}

// NewChronology returns the Chronology of a table with columns tenant, created_at and number.
func NewChronology(table, number string) Chronology {
	return Chronology{
		last: "SELECT " + number + " FROM " + table + " owned WHERE tenant = ?1 ORDER BY owned." + number + " DESC LIMIT 1 + 0",
		from: "SELECT " + number + ", created_at FROM " + table + " owned WHERE tenant = ?1 AND owned." + number + " >= ?2 ORDER BY owned." + number + " LIMIT 1 + 0",
	}
}

// NewChronologyOfAll returns the Chronology of a table's rows of all tenants. The table needs no
// column tenant. created names the column with the time at which a row was made.
func NewChronologyOfAll(table, number, created string) Chronology {
	return Chronology{
		last: "SELECT " + number + " FROM " + table + " WHERE " + number + " < 4611686018427387904 ORDER BY " + number + " DESC LIMIT 1 + 0",
		from: "SELECT " + number + ", " + created + " FROM " + table + " WHERE " + number + " >= ?1 ORDER BY " + number + " LIMIT 1 + 0",
		all:  true,
	}
}

// prep prepares a statement about the rows of a tenant, or of all.
func (table Chronology) prep(c driver.Conn, sql string, tenant int64) driver.Statement {
	if table.all {
		return c.Prep(sql)
	}
	return c.Prep(sql).Int(tenant)
}

// CreatedFrom returns when the first row was made that has a number or a higher one. It is zero if
// there is none.
func (table Chronology) CreatedFrom(c driver.Conn, tenant, number int64) (created time.Time, err error) {
	_, err = table.prep(c, table.from, tenant).Int(number).One(func(r driver.Row) { created = driver.FromMillis(r.Int(1)) })
	return created, err
}

// FirstSince returns a number: all rows of the tenant below it were created before that time. It
// is a binary search along an index.
func (table Chronology) FirstSince(c driver.Conn, tenant, at int64) (int64, error) {
	low, high := int64(0), int64(0)
	if _, err := table.prep(c, table.last, tenant).One(func(r driver.Row) { high = r.Int(0) + 1 }); err != nil {
		return 0, err
	}
	for low < high {
		middle := low + (high-low)/2
		var number, created int64
		found, err := table.prep(c, table.from, tenant).Int(middle).One(func(r driver.Row) { number, created = r.Int(0), r.Int(1) })
		switch {
		case err != nil:
			return 0, err
		case !found || created >= at:
			high = middle
		default:
			low = number + 1
		}
	}
	return low, nil
}

// Statements returns the statements of the Chronology, for tests of their plans.
func (table Chronology) Statements() []string { return []string{table.last, table.from} }
