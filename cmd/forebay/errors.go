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

// aboutQueue is a command about a queue: one that does not exist is a thing not found.
func aboutQueue(c *cobra.Command) *cobra.Command {
	return command.MapErrors(c, func(err error) error {
		if e, ok := errors.AsType[*forebay.Error](err); ok && e.Code == forebay.CodeUnknownQueue {
			return command.ExitError(command.ExitNotFound, e.Error())
		}
		return err
	})
}

// aboutRunning is a command about an instance that must not be over: one that is over is a
// conflict.
func aboutRunning(c *cobra.Command) *cobra.Command {
	return command.MapErrors(c, func(err error) error {
		if err != nil && forebay.CodeOf(err) == forebay.CodeGone {
			return command.ExitError(command.ExitConflict, err.Error())
		}
		return err
	})
}

// configured makes what the server finds wrong with its options an error of the configuration.
func configured(err error) error {
	e, ok := errors.AsType[*forebay.Error](err)
	if ok && (e.Code == forebay.CodeInvalidRequest || e.Code == forebay.CodeNotSupported) && e.Field != "" {
		return command.ExitError(command.ExitConfiguration, err.Error())
	}
	return err
}

// misconfigured makes an error of package config a list of problems with its exit code.
func misconfigured(err error) error {
	if e, ok := errors.AsType[*config.Error](err); ok {
		return command.ExitError(command.ExitConfiguration, e.Problems...)
	}
	return err
}
