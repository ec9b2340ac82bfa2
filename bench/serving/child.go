// Package serving runs servers in processes of their own, so that their processor time and memory
// can be told from their clients'. The program starts itself again for each. A Service is a
// Forebay, or what stands in its place, with the canned model that it calls. A Simulator has
// models with quotas.
package serving

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/forebayhq/forebay/server"
)

// ChildVariable holds a ChildSpec for a process that this program starts of itself.
const ChildVariable = "FOREBAY_BENCH_CHILD"

// ChildSpec says what a child process is.
type ChildSpec struct {
	Role     string // "forebay", "bare", "proxy", "idle", "orchestrations", "simulator", "amqp" or "nats"
	Database string // forebay: as in server.Options
	Blobs    string // forebay: its folder
	Model    string // base URL of the model
	Profile  string // forebay: where its CPU profile goes; "": none
	// Deployments of forebay that serve chat, in this order; none: one at Model.
	Deployments []server.Deployment
	Queue       server.Queue // forebay: its queue "default"
	Simulator   string       // simulator: its deployments, as the file of "forebay sim" has them
	ServiceBus  string       // forebay: where it serves Service Bus's clients; "": nowhere
	Config      string       // nats: its configuration file
}

// Child is a server in a process of its own, so that its memory and processor time are its own.
type Child struct {
	PID     int
	Address string // host:port
	URL     string // of address
	Bus     string // forebay: host:port for Service Bus's clients, if it serves them
	Stop    func() error
}

// StartChild starts this program as another process and waits until it serves.
func StartChild(ctx context.Context, spec ChildSpec) (*Child, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), ChildVariable+"="+string(encoded))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // the child lives until this closes
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{PID: cmd.Process.Pid, Stop: func() error {
		stdin.Close()
		return cmd.Wait()
	}}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s did not start: %w", spec.Role, c.Stop())
	}
	c.Address, c.Bus, _ = strings.Cut(strings.TrimSpace(line), " ")
	c.URL = "http://" + c.Address
	return c, nil
}
