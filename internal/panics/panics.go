// Package panics turns a panic into a failure of what was being done. Code that runs over input
// from outside is contained: the job, the instance or the request fails, and the process lives
// on.
//
// The log gets the stack and the kind of panic, once, but no other value: it may hold what the
// input held.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
)

// ErrPanicked is the error of what panicked. Callers see no more of it.
var ErrPanicked = errors.New("an internal error")

// Contain is to be deferred. If the function panics it logs the panic as what was being done,
// and has the function return [ErrPanicked]. The other results keep the values that they had.
func Contain(err *error, log *slog.Logger, what string) {
	if v := recover(); v != nil {
		Log(log, what, v)
		*err = ErrPanicked
	}
}

// Run calls f and returns its error, or [ErrPanicked] if it panics.
func Run(log *slog.Logger, what string, f func() error) (err error) {
	defer Contain(&err, log, what)
	return f()
}

// Log logs a value that recover returned, with the stack. It is to be called while the panic is
// handled.
func Log(log *slog.Logger, what string, v any) {
	log.Error("panic contained", slog.String("in", what), slog.String("panic", Describe(v)), slog.String("stack", string(debug.Stack())))
}

// Describe says what kind of panic a value is. Of the runtime's own errors it says all: they hold
// numbers and types, but no input.
func Describe(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", v)
}
