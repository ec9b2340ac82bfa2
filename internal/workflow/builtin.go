package workflow

import _ "embed"

//go:embed analyze-document.yaml
var analyzeDocument []byte

// Builtin returns the workflows that exist without any configuration.
func Builtin() []*Definition {
	d, err := Parse("analyze-document.yaml", analyzeDocument)
	if err != nil {
		panic(err) // it is part of the program
	}
	return []*Definition{d}
}
