package request

import (
	"strings"
	"unicode/utf8"
)

// Correlation is a job's correlation id: what was given at submit, else the job's id.
func Correlation(given, id string) string {
	if given == "" {
		return id
	}
	return given
}

// Text makes bytes of any origin fit for a JSON string.
func Text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
