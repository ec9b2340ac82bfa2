// Package shell writes arguments of command lines that a reader may copy.
package shell

import "strings"

// Word makes one word of a text: a shell takes it as it is and runs nothing.
func Word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:@/", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Args makes the last arguments of a command line of texts. One that begins with a dash would be
// taken for a flag, so -- stands before them then. No flag may follow.
func Args(texts ...string) string {
	words, dashed := make([]string, len(texts)), false
	for i, s := range texts {
		words[i] = Word(s)
		dashed = dashed || strings.HasPrefix(s, "-")
	}
	if dashed {
		words = append([]string{"--"}, words...)
	}
	return strings.Join(words, " ")
}
