// Command ensure finds or installs the programs that the tests of this module need. If it cannot,
// it names what is missing in one line and exits with status 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// tools returns what the tests run besides PostgreSQL and PgBouncer.
func tools() []toolchain.Tool {
	return []toolchain.Tool{toolchain.Node(), toolchain.Python(), toolchain.JDK(), toolchain.Shell(), toolchain.Chromium()}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := errors.Join(toolchain.Ensure(ctx, tools()...), pgtest.Ensure(ctx))
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests cannot run:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}
