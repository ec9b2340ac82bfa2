package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/config"
)

// Exit codes are part of the command line's contract.
const (
	exitOK            = 0
	exitFailed        = 1
	exitUsage         = 2
	exitNotFound      = 3
	exitUnauthorized  = 4
	exitConflict      = 5
	exitUnavailable   = 6
	exitStorage       = 7
	exitConfiguration = 8
	exitInterrupted   = 130
)

func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Every command ends with one of these exit codes:

    0  it worked
    1  the job, or a job of the batch, failed; or something unforeseen happened
    2  the command line or the input is invalid
    3  there is no such job, queue, tenant, deployment, key or other thing
    4  the API key is missing, wrong or not allowed to do this
    5  the state does not allow it: a conflict
    6  the server cannot be reached, is busy or broken; or its port is taken
    7  the database or the storage cannot be used
    8  the configuration is invalid
  130  interrupted

An error is one line on standard error that begins with "forebay:".`,
	}
}

// failure is an error with an exit code of its own. With no message nothing is printed.
type failure struct {
	code    int
	message string
}

func (f *failure) Error() string { return f.message }

func usagef(format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...)}
}

func failf(format string, args ...any) error {
	return &failure{exitFailed, fmt.Sprintf(format, args...)}
}

// report prints an error and returns its exit code.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code := a.exitCode(ctx, err)
	for _, line := range lines(ctx, err) {
		fmt.Fprintln(a.err, "forebay: "+clean(line))
	}
	return code
}

func lines(ctx context.Context, err error) []string {
	if e, ok := errors.AsType[*config.Error](err); ok {
		return e.Problems
	}
	if e, ok := errors.AsType[*failure](err); ok {
		if e.message == "" {
			return nil
		}
		return []string{e.message}
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

// advise adds to an error what to do about it. It stays one line with the same exit code.
func (a *app) advise(ctx context.Context, err error, advice string) error {
	return &failure{a.exitCode(ctx, err), strings.Join(append(lines(ctx, err), advice), "; ")}
}

func (a *app) exitCode(ctx context.Context, err error) int {
	if e, ok := errors.AsType[*failure](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitConfiguration
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if e, ok := errors.AsType[*forebay.Error](err); ok {
		return exitCodeOf(e.Code)
	}
	if !a.running {
		return exitUsage // cobra's own: unknown flags, missing arguments
	}
	return exitFailed
}

// exitCodeOf is the one place where codes become exit codes.
func exitCodeOf(code forebay.Code) int {
	switch code {
	case forebay.CodeNotFound, forebay.CodeGone:
		return exitNotFound
	case forebay.CodeUnauthorized, forebay.CodeForbidden:
		return exitUnauthorized
	case forebay.CodeConflict, forebay.CodeLockLost, forebay.CodeSessionLockLost, forebay.CodeSessionLocked,
		forebay.CodeIdempotencyMismatch:
		return exitConflict
	case forebay.CodeTooManyRequests, forebay.CodeRequestTimeout, forebay.CodeTenantLimit, forebay.CodeRateLimited,
		forebay.CodeUnavailable, forebay.CodeInternal:
		return exitUnavailable
	case forebay.CodeStorageFull, forebay.CodeDatabaseUnusable:
		return exitStorage
	}
	return exitUsage
}

// named has a command about one thing say that this was not found.
func named(c *cobra.Command, err error) error {
	var e *forebay.Error
	if errors.As(err, &e) && e.Code == forebay.CodeNotFound && e.Message == forebay.ErrNotFound.Message && c.Flags().NArg() == 1 {
		return &failure{exitNotFound, fmt.Sprintf("%.80q: not found", c.Flags().Arg(0))}
	}
	return err
}

// aboutQueue is a command about a queue: one that does not exist is a thing not found.
func aboutQueue(c *cobra.Command) *cobra.Command {
	return mapErrors(c, func(err error) error {
		if e, ok := errors.AsType[*forebay.Error](err); ok && e.Code == forebay.CodeUnknownQueue {
			return &failure{exitNotFound, e.Error()}
		}
		return err
	})
}

// aboutRunning is a command about an instance that must not be over: one that is over is a
// conflict.
func aboutRunning(c *cobra.Command) *cobra.Command {
	return mapErrors(c, func(err error) error {
		if err != nil && forebay.CodeOf(err) == forebay.CodeGone {
			return &failure{exitConflict, err.Error()}
		}
		return err
	})
}

// configured makes what the server finds wrong with its options an error of the configuration.
func configured(err error) error {
	e, ok := errors.AsType[*forebay.Error](err)
	if ok && (e.Code == forebay.CodeInvalidRequest || e.Code == forebay.CodeNotSupported) && e.Field != "" {
		return &failure{exitConfiguration, err.Error()}
	}
	return err
}

// cause is what is wrong with a file, without its path.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
