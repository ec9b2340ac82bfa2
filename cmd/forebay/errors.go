package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
)

// exitCodes is the help about exit codes.
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

// aboutQueue is for a command about a queue. If the queue does not exist the exit code is
// ExitNotFound.
func aboutQueue(c *cobra.Command) *cobra.Command {
	return command.MapErrors(c, func(err error) error {
		if e, ok := errors.AsType[*forebay.Error](err); ok && e.Code == forebay.CodeUnknownQueue {
			return command.ExitError(command.ExitNotFound, e.Error())
		}
		return err
	})
}

// aboutRunning is for a command about an instance that must not have ended. If it has ended the
// exit code is ExitConflict.
func aboutRunning(c *cobra.Command) *cobra.Command {
	return command.MapErrors(c, func(err error) error {
		if err != nil && forebay.CodeOf(err) == forebay.CodeGone {
			return command.ExitError(command.ExitConflict, err.Error())
		}
		return err
	})
}

// configured gives an error about the server's options the exit code ExitConfiguration.
func configured(err error) error {
	e, ok := errors.AsType[*forebay.Error](err)
	if ok && (e.Code == forebay.CodeInvalidRequest || e.Code == forebay.CodeNotSupported) && e.Field != "" {
		return command.ExitError(command.ExitConfiguration, err.Error())
	}
	return err
}

// misconfigured gives an error of package config the exit code ExitConfiguration and a line for
// each problem.
func misconfigured(err error) error {
	if e, ok := errors.AsType[*config.Error](err); ok {
		return command.ExitError(command.ExitConfiguration, e.Problems...)
	}
	return err
}
