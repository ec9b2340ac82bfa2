package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

// The exit codes are part of the command line's contract.
const (
	ExitOK            = 0
	ExitFailed        = 1
	ExitUsage         = 2
	ExitNotFound      = 3
	ExitUnauthorized  = 4
	ExitConflict      = 5
	ExitUnavailable   = 6
	ExitStorage       = 7
	ExitConfiguration = 8
	ExitInterrupted   = 130
)

// failure is an error with an exit code of its own.
type failure struct {
	code  int
	lines []string
}

func (f *failure) Error() string { return strings.Join(f.lines, "\n") }

// ExitError is an error that ends the command with an exit code. Each line goes to standard error.
// Without lines nothing is printed. Then the output has already said what is wrong.
func ExitError(code int, lines ...string) error { return &failure{code, lines} }

// Usagef is an error of the command line or its input. The exit code is ExitUsage.
func Usagef(format string, args ...any) error {
	return ExitError(ExitUsage, fmt.Sprintf(format, args...))
}

// Failf is an error with the exit code ExitFailed.
func Failf(format string, args ...any) error {
	return ExitError(ExitFailed, fmt.Sprintf(format, args...))
}

// report prints an error and returns its exit code.
func (a *App) report(ctx context.Context, err error) int {
	if err == nil {
		return ExitOK
	}
	code := a.ExitCode(ctx, err)
	for _, line := range Lines(ctx, err) {
		fmt.Fprintln(a.Err, "forebay: "+Clean(line))
	}
	return code
}

// Lines are the lines that an error prints, without the prefix.
func Lines(ctx context.Context, err error) []string {
	if e, ok := errors.AsType[*failure](err); ok {
		return e.lines
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return []string{"interrupted"}
	}
	message := err.Error()
	if e, ok := errors.AsType[*forebay.Error](err); ok && e.JobID != "" {
		message += " (job " + e.JobID + ")"
	}
	return []string{strings.ReplaceAll(message, "\n", "; ")}
}

// Advise adds advice to an error. The result is one line with the same exit code.
func (a *App) Advise(ctx context.Context, err error, advice string) error {
	return ExitError(a.ExitCode(ctx, err), strings.Join(append(Lines(ctx, err), advice), "; "))
}

// ExitCode returns the exit code of an error.
func (a *App) ExitCode(ctx context.Context, err error) int {
	if e, ok := errors.AsType[*failure](err); ok {
		return e.code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	if e, ok := errors.AsType[*forebay.Error](err); ok {
		return ExitCodeOf(e.Code)
	}
	if !a.running {
		return ExitUsage // cobra's own: unknown flags, missing arguments
	}
	return ExitFailed
}

// ExitCodeOf maps an error code of the API to an exit code.
func ExitCodeOf(code forebay.Code) int {
	switch code {
	case forebay.CodeNotFound, forebay.CodeGone:
		return ExitNotFound
	case forebay.CodeUnauthorized, forebay.CodeForbidden:
		return ExitUnauthorized
	case forebay.CodeConflict, forebay.CodeLockLost, forebay.CodeSessionLockLost, forebay.CodeSessionLocked, forebay.CodeEntityDisabled,
		forebay.CodeIdempotencyMismatch, forebay.CodePreconditionFailed:
		return ExitConflict
	case forebay.CodeTooManyRequests, forebay.CodeRequestTimeout, forebay.CodeTenantLimit, forebay.CodeRateLimited,
		forebay.CodeUnavailable, forebay.CodeInternal:
		return ExitUnavailable
	case forebay.CodeStorageFull, forebay.CodeDatabaseUnusable:
		return ExitStorage
	}
	return ExitUsage
}

// named puts the name into a "not found" error, if the command has exactly one argument.
func named(c *cobra.Command, err error) error {
	var e *forebay.Error
	if errors.As(err, &e) && e.Code == forebay.CodeNotFound && e.Message == forebay.ErrNotFound.Message && c.Flags().NArg() == 1 {
		return ExitError(ExitNotFound, fmt.Sprintf("%.80q: not found", c.Flags().Arg(0)))
	}
	return err
}

// Cause returns an error of a file without the path.
func Cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
