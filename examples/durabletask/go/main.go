// A whole program with the Durable Task SDK for Go (github.com/dapr/durabletask-go) and Forebay.
//
//	forebay serve                      # with orchestrations.grpc.address: 127.0.0.1:4001
//	go run ./examples/durabletask/go 127.0.0.1:4001 [KEY]
//
// It is a worker and a client in one process. Each line that it prints says what became of one
// orchestration. A program that can embed the server needs none of this:
// github.com/forebayhq/forebay/server has orchestrators as typed functions.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/client"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func hello(ctx task.ActivityContext) (any, error) {
	var name string
	err := ctx.GetInput(&name)
	return "Hello " + name + "!", err
}

func square(ctx task.ActivityContext) (any, error) {
	var n int
	err := ctx.GetInput(&n)
	return n * n, err
}

var tries atomic.Int32

// flaky fails twice.
func flaky(task.ActivityContext) (any, error) {
	if n := tries.Add(1); n >= 3 {
		return n, nil
	}
	return nil, errors.New("not yet")
}

func chain(ctx *task.WorkflowContext) (any, error) {
	var name string
	if err := ctx.GetInput(&name); err != nil {
		return nil, err
	}
	for range 2 {
		if err := ctx.CallActivity(hello, task.WithActivityInput(name)).Await(&name); err != nil {
			return nil, err
		}
	}
	return name, nil
}

func fanOut(ctx *task.WorkflowContext) (any, error) {
	var n int
	if err := ctx.GetInput(&n); err != nil {
		return nil, err
	}
	var squares []task.Task
	for i := range n {
		squares = append(squares, ctx.CallActivity(square, task.WithActivityInput(i)))
	}
	sum := 0
	for _, s := range squares {
		var squared int
		if err := s.Await(&squared); err != nil {
			return nil, err
		}
		sum += squared
	}
	return sum, nil
}

func retried(ctx *task.WorkflowContext) (any, error) {
	policy := &task.RetryPolicy{InitialRetryInterval: 100 * time.Millisecond, MaxAttempts: 5}
	var n int
	err := ctx.CallActivity(flaky, task.WithActivityRetryPolicy(policy)).Await(&n)
	return n, err
}

func timer(ctx *task.WorkflowContext) (any, error) {
	return "later", ctx.CreateTimer(200 * time.Millisecond).Await(nil)
}

func approval(ctx *task.WorkflowContext) (any, error) {
	var by string
	err := ctx.WaitForSingleEvent("approved", -1).Await(&by)
	return by, err
}

func parent(ctx *task.WorkflowContext) (any, error) {
	var n, sum int
	if err := ctx.GetInput(&n); err != nil {
		return nil, err
	}
	err := ctx.CallChildWorkflow(fanOut, task.WithChildWorkflowInput(n)).Await(&sum)
	return sum, err
}

// bearer sends the API key with every call. A server without TLS is one of this machine only.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

func run(ctx context.Context, address, key string) error {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(key)))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := client.NewTaskHubGrpcClient(conn, backend.DefaultLogger())
	registry := task.NewTaskRegistry()
	for name, workflow := range map[string]task.Workflow{"chain": chain, "fanOut": fanOut, "retried": retried, "timer": timer, "approval": approval, "parent": parent} {
		err = errors.Join(err, registry.AddWorkflowN(name, workflow))
	}
	for name, activity := range map[string]task.Activity{"hello": hello, "square": square, "flaky": flaky} {
		err = errors.Join(err, registry.AddActivityN(name, activity))
	}
	if err := errors.Join(err, c.StartWorkItemListener(ctx, registry)); err != nil {
		return err
	}

	ended := func(name string, id api.InstanceID) error {
		state, err := c.WaitForWorkflowCompletion(ctx, id, api.WithFetchPayloads(true))
		if err == nil {
			status := strings.TrimPrefix(state.RuntimeStatus.String(), "ORCHESTRATION_STATUS_")
			fmt.Println(name, status, state.Output.GetValue())
		}
		return err
	}
	for _, one := range []struct {
		name  string
		input any
	}{{"chain", "you"}, {"fanOut", 5}, {"retried", nil}, {"timer", nil}, {"parent", 4}} {
		id, err := c.ScheduleNewWorkflow(ctx, one.name, api.WithInput(one.input))
		if err == nil {
			err = ended(one.name, id)
		}
		if err != nil {
			return err
		}
	}

	id, err := c.ScheduleNewWorkflow(ctx, "approval")
	if err != nil {
		return err
	}
	_, err = c.WaitForWorkflowStart(ctx, id)
	err = errors.Join(err,
		c.SuspendWorkflow(ctx, id, "a look at it"),
		c.ResumeWorkflow(ctx, id, "it is fine"),
		c.RaiseEvent(ctx, id, "approved", api.WithEventPayload("by me")))
	if err == nil {
		err = ended("approval", id)
	}
	if err != nil {
		return err
	}

	if id, err = c.ScheduleNewWorkflow(ctx, "approval"); err != nil {
		return err
	}
	_, err = c.WaitForWorkflowStart(ctx, id)
	if err = errors.Join(err, c.TerminateWorkflow(ctx, id, api.WithOutput("enough"))); err != nil {
		return err
	}
	return ended("terminated", id)
}

func main() {
	key := ""
	if len(os.Args) == 3 {
		key = os.Args[2]
	} else if len(os.Args) != 2 {
		log.Fatal("usage: go run ./examples/durabletask/go ADDRESS [KEY]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], key); err != nil {
		log.Fatal(err)
	}
}
