package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/forebayhq/forebay/bench/orchestrate"
	"github.com/forebayhq/forebay/bench/servicebus"
	"github.com/forebayhq/forebay/bench/serving"
)

// runChild is what a child process does: serve until standard input closes.
func runChild(encoded string) error {
	var spec serving.ChildSpec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	switch spec.Role {
	case "idle":
		fmt.Println("idle")
		<-ctx.Done()
		return nil
	case "bare":
		return serving.ServeBare(ctx, spec.Model)
	case "proxy":
		return serving.ServeProxy(ctx, spec.Model)
	case "orchestrations":
		return orchestrate.Serve(ctx, spec)
	case "amqp":
		return servicebus.ServeBareAMQP(ctx, spec.Database)
	case "nats":
		return servicebus.ServeNATS(ctx, spec.Config)
	case "simulator":
		return serving.ServeSimulator(ctx, spec.Simulator)
	default:
		return serving.ServeForebay(ctx, spec)
	}
}
