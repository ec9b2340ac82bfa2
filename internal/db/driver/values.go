package driver

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// FromMillis is the time of milliseconds since 1970.
func FromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// FromMillisOrNil is the time in a column; nil for NULL.
func FromMillisOrNil(r Row, i int) *time.Time {
	if r.IsNull(i) {
		return nil
	}
	t := FromMillis(r.Int(i))
	return &t
}

// Millis is a time in milliseconds since 1970; 0 for nil.
func Millis(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return max(1, at.UnixMilli())
}

// MillisOrZero is a time in milliseconds since 1970; 0 for the zero time.
func MillisOrZero(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// BoolInt is 1 for true, as a column keeps it.
func BoolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// IntOrNil is the integer in a column; nil for NULL.
func IntOrNil(r Row, i int) *int64 {
	if r.IsNull(i) {
		return nil
	}
	n := r.Int(i)
	return &n
}

// FromMillisDuration is a duration of milliseconds.
func FromMillisDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// UnlessStopped takes ErrStop for the end of a walk, not for an error.
func UnlessStopped(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// EachOf runs a statement for each of these numbers, with the rest as its other parameters.
// SQLite runs one after the other, PostgreSQL all at once.
func EachOf(c Conn, columns, joins string, numbers []int64, f func(Row) error, rest ...int64) error {
	bound := func(st Statement) Statement {
		for _, n := range rest {
			st = st.Int(n)
		}
		return st
	}
	if c.Arrays() {
		return bound(c.Prep(columns + OfNumbersShared + joins).Text(ArrayOf(numbers))).Each(f)
	}
	for _, n := range numbers {
		if err := bound(c.Prep(columns + " FROM (SELECT ?1 AS no) x" + joins).Int(n)).Each(f); err != nil {
			return err
		}
	}
	return nil
}

// ArrayOf writes numbers as an array in PostgreSQL's notation.
func ArrayOf(numbers []int64) string {
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

// ArrayOfTexts is arrayOf for texts.
func ArrayOfTexts(texts []string) string {
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

// ErrDisconnected marks an error after which a connection cannot be used any more.
var ErrDisconnected = errors.New("the connection to the database is lost")

// OfNumbersShared are the numbers of EachOf where arrays are parameters.
const OfNumbersShared = " FROM unnest(CAST(?1 AS bigint[])) AS x(no)"

// TakenFromCopy refuses a copy.
const TakenFromCopy = "a Forebay server is running on this database, or another copy; stop it first"

// Unusable is the error that a database cannot be used as it is.
func Unusable(message string, err error) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", message).Caused(err)
}
