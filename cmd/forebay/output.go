package main

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
)

const (
	outputTable = "table"
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

// outputs are the values of --output.
var outputs = []string{outputTable, outputJSON, outputJSONL}

// field is a name and a value: a row of a thing that is printed alone, or a column of a list.
type field struct{ name, value string }

// view is what people see of a T: its fields when it is printed alone, or its columns in a list.
type view[T any] func(T) []field

// printOne prints one thing: its fields that have a value, a row each, or all of it as JSON.
func (a *app) printOne(v any, fields []field) error {
	if a.output != outputTable {
		return a.printJSON(v)
	}
	t := newTable(a.out)
	for _, f := range fields {
		if f.value != "" {
			t.row(f.name, f.value)
		}
	}
	return t.flush()
}

// printList prints items as they come, or the first limit of them if that is positive. A table has
// the names of columns as its titles, and so columns must also take the zero value.
func printList[T any](a *app, items iter.Seq2[T, error], limit int, columns view[T]) error {
	var none T
	t := newTable(a.out) // it is printed when it is complete, as is an array of JSON
	t.row(cells(columns(none), func(f field) string { return f.name })...)
	array := []T{}
	n := 0
	for item, err := range items {
		if err != nil {
			return err
		}
		switch a.output {
		case outputTable:
			t.row(cells(columns(item), func(f field) string { return f.value })...)
		case outputJSON:
			array = append(array, item)
		default:
			if err := a.printJSON(item); err != nil {
				return err
			}
		}
		if n++; n == limit {
			break
		}
	}
	switch a.output {
	case outputTable:
		return t.flush()
	case outputJSON:
		return a.printJSON(array)
	}
	return nil
}

func cells(fields []field, text func(field) string) []string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = text(f)
	}
	return texts
}

// printJSON prints a value in lines, or in one line for jsonl.
func (a *app) printJSON(v any) error {
	if a.output == outputJSONL {
		return writeJSON(a.out, v, "")
	}
	return writeJSON(a.out, v, "  ")
}

// printSection prints a table with an empty line before it, or nothing if there are no items.
func printSection[T any](a *app, items []T, columns view[T]) error {
	if len(items) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	return printList(a, all(items), 0, columns)
}

// say prints a line for people. The other outputs have none.
func (a *app) say(format string, args ...any) error {
	if a.output != outputTable {
		return nil
	}
	_, err := fmt.Fprintln(a.out, clean(fmt.Sprintf(format, args...)))
	return err
}

// note prints a line for people beside the output.
func (a *app) note(text string) {
	if a.output == outputTable {
		fmt.Fprintln(a.err, text)
	}
}

// table aligns columns two spaces apart.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer) *table { return &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) // errors stay with the writer until flush
}

func (t *table) flush() error { return t.w.Flush() }

// all turns a slice into the sequence that printList takes.
func all[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func writeLine(w io.Writer, text []byte) error {
	_, err := fmt.Fprintf(w, "%s\n", text)
	return err
}
