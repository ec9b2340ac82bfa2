package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The README names everything that make test looks for.
func TestReadmeNamesWhatTestsNeed(t *testing.T) {
	content, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(content), "## Two commands\n")
	section, _, found := strings.Cut(after, "```sh")
	if !found {
		t.Fatal("the README has no such section")
	}
	words := []string{"PostgreSQL", "PgBouncer"}
	for _, tool := range tools() {
		words = append(words, strings.Fields(tool.Name)...)
	}
	named := strings.FieldsFunc(section, func(r rune) bool { return strings.ContainsRune(" \n,()", r) })
	for i, word := range named {
		named[i] = strings.TrimSuffix(word, ".")
	}
	for _, word := range words {
		if !slices.Contains(named, word) {
			t.Errorf("the README does not name %s", word)
		}
	}
}
