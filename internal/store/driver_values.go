package store

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func fromMillisOrNil(r row, i int) *time.Time {
	if r.isNull(i) {
		return nil
	}
	t := fromMillis(r.int(i))
	return &t
}

func millis(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return max(1, at.UnixMilli())
}

func asInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func intOrNil(r row, i int) *int64 {
	if r.isNull(i) {
		return nil
	}
	n := r.int(i)
	return &n
}

func fromMillisDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func unlessStopped(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// eachOf runs a statement for each of these numbers, with the rest as its other parameters: on SQLite one after
// the other, on PostgreSQL at once.
func eachOf(c conn, columns, joins string, numbers []int64, f func(row) error, rest ...int64) error {
	bound := func(st statement) statement {
		for _, n := range rest {
			st = st.int(n)
		}
		return st
	}
	if c.arrays() {
		return bound(c.prep(columns + ofNumbersShared + joins).text(arrayOf(numbers))).each(f)
	}
	for _, n := range numbers {
		if err := bound(c.prep(columns + " FROM (SELECT ?1 AS no) x" + joins).int(n)).each(f); err != nil {
			return err
		}
	}
	return nil
}

// arrayOf writes numbers as an array in PostgreSQL's notation.
func arrayOf(numbers []int64) string {
	b := make([]byte, 0, 2+8*len(numbers))
	b = append(b, '{')
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

// arrayOfTexts is arrayOf for texts.
func arrayOfTexts(texts []string) string {
	b := []byte{'{'}
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, quoteElement.Replace(text)...)
		b = append(b, '"')
	}
	return string(append(b, '}'))
}

var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// errDisconnected marks an error after which a connection cannot be used any more.
var errDisconnected = errors.New("the connection to the database is lost")

const ofNumbersShared = " FROM unnest(CAST(?1 AS bigint[])) AS x(no)"

// takenFromCopy refuses a copy.
const takenFromCopy = "a Forebay server is running on this database, or another copy; stop it first"

func unusable(message string, err error) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", message).Caused(err)
}
