package command

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
)

// Values of --output.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputJSONL = "jsonl"
)

// outputs are the values of --output.
var outputs = []string{OutputTable, OutputJSON, OutputJSONL}

// Field is a name and a value: a row of a single thing, or a column of a list.
type Field [2]string

func (f Field) name() string  { return f[0] }
func (f Field) value() string { return f[1] }

// View returns what a table shows of a T: the rows of a single thing, or the columns of a list.
type View[T any] func(T) []Field

// PrintOne prints one thing. A table has a row for each field with a value. JSON has all of v.
func (a *App) PrintOne(v any, fields []Field) error {
	if a.Output != OutputTable {
		return a.PrintJSON(v)
	}
	t := newTable(a.Out)
	for _, f := range fields {
		if f.value() != "" {
			t.row(f.name(), f.value())
		}
	}
	return t.flush()
}

// PrintList prints items. The titles of a table come from the columns of the zero value.
func PrintList[T any](a *App, items []T, columns View[T]) error {
	return printItems(a, func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}, 0, columns)
}

// printItems is PrintList for a sequence. If limit is positive it prints only so many items.
func printItems[T any](a *App, items iter.Seq2[T, error], limit int, columns View[T]) error {
	var none T
	t := newTable(a.Out) // it is printed when it is complete, as is an array of JSON
	t.row(cells(columns(none), Field.name)...)
	array := []T{}
	n := 0
	for item, err := range items {
		if err != nil {
			return err
		}
		switch a.Output {
		case OutputTable:
			t.row(cells(columns(item), Field.value)...)
		case OutputJSON:
			array = append(array, item)
		default:
			if err := a.PrintJSON(item); err != nil {
				return err
			}
		}
		if n++; n == limit {
			break
		}
	}
	switch a.Output {
	case OutputTable:
		return t.flush()
	case OutputJSON:
		return a.PrintJSON(array)
	}
	return nil
}

func cells(fields []Field, text func(Field) string) []string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = text(f)
	}
	return texts
}

// PrintJSON prints a value as indented JSON, or in one line for OutputJSONL.
func (a *App) PrintJSON(v any) error {
	if a.Output == OutputJSONL {
		return WriteJSON(a.Out, v, "")
	}
	return WriteJSON(a.Out, v, "  ")
}

// PrintSection prints an empty line and a table of the items, or nothing if there are none.
func PrintSection[T any](a *App, items []T, columns View[T]) error {
	if len(items) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(a.Out); err != nil {
		return err
	}
	return PrintList(a, items, columns)
}

// PrintLine prints one thing. Instead of a table it prints one line of text.
func (a *App) PrintLine(v any, format string, args ...any) error {
	if a.Output != OutputTable {
		return a.PrintJSON(v)
	}
	return a.Say(format, args...)
}

// Say prints a line for people. It prints nothing if the output is JSON.
func (a *App) Say(format string, args ...any) error {
	if a.Output != OutputTable {
		return nil
	}
	_, err := fmt.Fprintln(a.Out, Clean(fmt.Sprintf(format, args...)))
	return err
}

// Note prints a line for people on standard error. It prints nothing if the output is JSON.
func (a *App) Note(text string) {
	if a.Output == OutputTable {
		fmt.Fprintln(a.Err, text)
	}
}

// table aligns columns two spaces apart.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer) *table { return &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = Clean(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) // errors stay with the writer until flush
}

func (t *table) flush() error { return t.w.Flush() }

// WriteLine writes a text and a line end.
func WriteLine(w io.Writer, text []byte) error {
	_, err := fmt.Fprintf(w, "%s\n", text)
	return err
}
