package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/Azure/go-amqp"
	rabbit "github.com/rabbitmq/amqp091-go"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/sleep"
)

// rabbitMQ is a node of its own, with a folder of its own.
type rabbitMQ struct {
	address string // of AMQP 1.0 and 0.9.1
	node    *exec.Cmd
	epmd    *exec.Cmd // Erlang's register of nodes
	dir     string
	admin   *rabbit.Connection
}

// freePort returns a port on which nobody listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func startRabbitMQ(ctx context.Context, b *measure.Bench) (r *rabbitMQ, err error) {
	var ports [3]int // of AMQP, of Erlang's distribution and of epmd
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return nil, err
	}
	r = &rabbitMQ{address: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	if r.dir, err = os.MkdirTemp(dir, "rabbitmq-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	env := append(os.Environ(), "HOME="+r.dir, fmt.Sprintf("ERL_EPMD_PORT=%d", ports[2]), "ERL_EPMD_ADDRESS=127.0.0.1")
	r.epmd = exec.CommandContext(ctx, "epmd")
	r.epmd.Env = env
	if err := r.epmd.Start(); err != nil {
		return nil, err
	}
	// A node that finds no epmd starts one that stays.
	if err := eventually(ctx, func() error { return dials(ctx, fmt.Sprintf("127.0.0.1:%d", ports[2])) }); err != nil {
		return nil, fmt.Errorf("epmd does not listen: %w", err)
	}
	plugins := filepath.Join(r.dir, "plugins")
	if err := os.WriteFile(plugins, []byte("[rabbitmq_amqp1_0]."), 0o600); err != nil {
		return nil, err
	}
	r.node = exec.CommandContext(ctx, b.RabbitMQ)
	r.node.Env = append(env,
		"RABBITMQ_NODENAME=bench@localhost", fmt.Sprintf("RABBITMQ_NODE_PORT=%d", ports[0]), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", ports[1]),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_MNESIA_BASE="+filepath.Join(r.dir, "mnesia"), "RABBITMQ_LOG_BASE="+filepath.Join(r.dir, "log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins, "RABBITMQ_CONFIG_FILE="+filepath.Join(r.dir, "none"), "RABBITMQ_CONF_ENV_FILE="+filepath.Join(r.dir, "none"),
		"RUNNING_UNDER_SYSTEMD=true", // lets the script become the node, so that its process is the one that is measured
	)
	r.node.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its helpers end with it
	if err := r.node.Start(); err != nil {
		return nil, err
	}
	err = eventually(ctx, func() error {
		r.admin, err = rabbit.Dial("amqp://guest:guest@" + r.address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("RabbitMQ does not answer: %w", err)
	}
	return r, nil
}

// eventually calls f until it succeeds, for at most two minutes.
func eventually(ctx context.Context, f func() error) error {
	for begun := time.Now(); ; {
		err := f()
		if err == nil || time.Since(begun) > 2*time.Minute {
			return err
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func dials(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// close kills the node, for nobody needs its data.
func (r *rabbitMQ) close() error {
	if r.admin != nil {
		_ = r.admin.Close()
	}
	if r.node != nil && r.node.Process != nil {
		_ = syscall.Kill(-r.node.Process.Pid, syscall.SIGKILL)
		_ = r.node.Wait()
	}
	if r.epmd != nil && r.epmd.Process != nil {
		_ = r.epmd.Process.Kill()
		_ = r.epmd.Wait()
	}
	return os.RemoveAll(r.dir)
}

// makes makes a quorum queue, RabbitMQ's durable kind, which syncs what it confirms.
func (r *rabbitMQ) makes(_ context.Context, queue string) error {
	ch, err := r.admin.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclare(queue, true, false, false, false, rabbit.Table{rabbit.QueueTypeArg: rabbit.QueueTypeQuorum})
	return errors.Join(err, ch.Close())
}

// left counts what no consumer holds. Those of a consumer that has gone are counted.
func (r *rabbitMQ) left(_ context.Context, queue string) (int, error) {
	ch, err := r.admin.Channel()
	if err != nil {
		return 0, err
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, rabbit.Table{rabbit.QueueTypeArg: rabbit.QueueTypeQuorum})
	return q.Messages, errors.Join(err, ch.Close())
}

func (r *rabbitMQ) broker(connect func(context.Context) (connection, error)) *broker {
	return &broker{pid: r.node.Process.Pid, makes: r.makes, left: r.left, lag: 2 * time.Second, stop: r.close, connect: connect}
}

// startRabbitAMQP starts a node for clients of AMQP 1.0, which its plugin serves.
func startRabbitAMQP(ctx context.Context, b *measure.Bench) (*broker, error) {
	r, err := startRabbitMQ(ctx, b)
	if err != nil {
		return nil, err
	}
	return r.broker(func(ctx context.Context) (connection, error) {
		c, err := dialAMQP(ctx, r.address, amqp.SASLTypePlain("guest", "guest"))
		if err != nil {
			return nil, err
		}
		// The plugin miscounts credit that comes while it sends to a quorum queue's receiver, and
		// then sends nothing any more.
		c.prefix, c.creditOnce = "/amq/queue/", true
		return c, nil
	}), nil
}

// startRabbit091 starts a node for clients of AMQP 0.9.1.
func startRabbit091(ctx context.Context, b *measure.Bench) (*broker, error) {
	r, err := startRabbitMQ(ctx, b)
	if err != nil {
		return nil, err
	}
	return r.broker(func(context.Context) (connection, error) {
		c, err := rabbit.Dial("amqp://guest:guest@" + r.address)
		return rabbitConn{c}, err
	}), nil
}

// rabbitConn is a connection of AMQP 0.9.1. Each link is a channel.
type rabbitConn struct{ *rabbit.Connection }

func (c rabbitConn) close() error { return c.Close() }

func (c rabbitConn) sender(_ context.Context, queue string) (messageSender, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, err
	}
	return rabbitSender{ch, queue}, ch.Confirm(false)
}

func (c rabbitConn) receiver(_ context.Context, queue string) (messageReceiver, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Qos(underWay, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	return rabbitReceiver(deliveries), err
}

type rabbitSender struct {
	*rabbit.Channel
	queue string
}

func (s rabbitSender) begin(ctx context.Context) (wait func(context.Context) error, err error) {
	confirm, err := s.PublishWithDeferredConfirmWithContext(ctx, "", s.queue, false, false, rabbit.Publishing{DeliveryMode: rabbit.Persistent, Body: []byte(measure.Text)})
	return func(ctx context.Context) error {
		stored, err := confirm.WaitContext(ctx)
		if err == nil && !stored {
			return errors.New("a message was not confirmed")
		}
		return err
	}, err
}

func (s rabbitSender) send(ctx context.Context) error {
	wait, err := s.begin(ctx)
	if err != nil {
		return err
	}
	return wait(ctx)
}

func (s rabbitSender) sendMany(ctx context.Context, n int) error {
	return sliding(ctx, n, func() (func(context.Context) error, error) { return s.begin(ctx) })
}

type rabbitReceiver <-chan rabbit.Delivery

func (r rabbitReceiver) receive(ctx context.Context, _ int, came func()) (int, error) {
	select {
	case d, ok := <-r:
		if !ok {
			return 0, errors.New("the channel has ended")
		}
		if came != nil {
			came()
		}
		return 1, d.Ack(false)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
