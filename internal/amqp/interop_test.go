package amqp_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// interop serves the node q, by its name or by a URI with it, to whoever knows the password.
func interop(t *testing.T) (port string, q *node) {
	q = newNode()
	onlyQ := func(p *string) bool { return address(p) == "q" || strings.HasSuffix(address(p), "/q") }
	s := serve(t, amqp.Options{
		IdleTimeout: 20 * time.Second,
		Mechanisms: []amqp.Mechanism{amqp.Anonymous("MSSBCBS"), amqp.Plain(func(_ context.Context, user, password string) (any, error) {
			if user != "me" || password != "secret" {
				return nil, errors.New("wrong")
			}
			return user, nil
		}), amqp.Anonymous("ANONYMOUS")},
		Handler: &handler{
			incoming: func(l *amqp.Incoming) {
				if !onlyQ(l.Attach().Target.Address) {
					l.Refuse(errNone)
					return
				}
				_ = l.Accept(amqp.IncomingOptions{Receive: q.receive})
			},
			outgoing: func(l *amqp.Outgoing) {
				if !onlyQ(l.Attach().Source.Address) {
					l.Refuse(errNone)
					return
				}
				q.send(l, amqp.OutgoingOptions{Properties: wire.Map{}})
			},
		},
	})
	return s.address[strings.LastIndex(s.address, ":")+1:], q
}

// runPeer runs a program of another client, which prints "done" at last.
func runPeer(t *testing.T, env string, program ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	command.Env = append(os.Environ(), env)
	out, err := command.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "done") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// outcomes counts the outcomes that the server was told.
func outcomes(list []amqp.Settlement) (accepted, released, rejected, modified int) {
	for _, s := range list {
		switch s.State.(type) {
		case *wire.Accepted:
			accepted++
		case *wire.Released:
			released++
		case *wire.Rejected:
			rejected++
		case *wire.Modified:
			modified++
		}
	}
	return accepted, released, rejected, modified
}

func TestRhea(t *testing.T) {
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "rhea"))
	port, q := interop(t)
	runPeer(t, "NODE_PATH="+filepath.Join(modules, "node_modules"), toolchain.NodeFor(t, modules), filepath.Join("testdata", "rhea", "peer.js"), port)
	if a, b, c, d := outcomes(q.settlements(t, 3000)); a != 2700 || b != 100 || c != 100 || d != 100 {
		t.Errorf("accepted %d, released %d, rejected %d, modified %d", a, b, c, d)
	}
}

func TestPyAMQP(t *testing.T) {
	packages := toolchain.PythonPackages(t, filepath.Join("testdata", "pyamqp"))
	port, q := interop(t)
	runPeer(t, "PYTHONPATH="+packages, "python3", filepath.Join("testdata", "pyamqp", "peer.py"), port)
	if a, b, c, d := outcomes(q.settlements(t, 300)); a != 75 || b != 75 || c != 75 || d != 75 {
		t.Errorf("accepted %d, released %d, rejected %d, modified %d", a, b, c, d)
	}
}
