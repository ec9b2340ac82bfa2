package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// notifier publishes notifications to the other processes and receives theirs. It has two
// connections of its own, so that no transaction waits for it. NOTIFY takes a lock that all
// commits of a server share.
type notifier struct {
	target   *postgres.Target
	channel  string
	received func(*Notification)
	signals  signals
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	pending Notification
	kick    chan struct{}
	own     map[uint32]bool // process ids of our connections, whose notifications are our own
}

func newNotifier(target *postgres.Target) *notifier {
	path := target.RuntimeParams["search_path"]
	e := &notifier{target: target.Copy(), channel: channelOf("forebay_", path),
		signals: signals{channel: channelOf("forebay_signals_", path), waiting: make(chan string, maxSignals)}, kick: make(chan struct{}, 1), own: map[uint32]bool{}}
	e.target.OnNotification = e.notified
	return e
}

// maxChannelBytes is PostgreSQL's limit on names (NAMEDATALEN - 1).
const maxChannelBytes = 63

var plainPath = regexp.MustCompile(`^[A-Za-z0-9_$,. -]*$`)

// channelOf names the channel of the processes that use the same tables. What does not do as a
// name is told by its hash.
func channelOf(prefix, searchPath string) string {
	if len(prefix)+len(searchPath) <= maxChannelBytes && plainPath.MatchString(searchPath) {
		return prefix + searchPath
	}
	hash := sha256.Sum256([]byte(searchPath))
	return prefix + hex.EncodeToString(hash[:16])
}

// start begins to send, and to hand what is received to received.
func (e *notifier) start(received func(*Notification)) {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.received = received
	e.running.Go(func() { e.always(ctx, e.send) })
	e.running.Go(func() { e.always(ctx, e.listen) })
}

func (e *notifier) close() {
	e.stop()
	e.running.Wait()
}

// publish hands a notification over to be sent. Its words are the notifier's from then on.
func (e *notifier) publish(n *Notification) {
	e.mu.Lock()
	if e.pending.empty() {
		e.pending = *n
	} else {
		e.pending.addAll(n)
	}
	e.mu.Unlock()
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// reconnectPause is how long a connection that was lost is left alone.
const reconnectPause = 500 * time.Millisecond

// always runs f with a connection, again and again.
func (e *notifier) always(ctx context.Context, f func(context.Context, *pgconn.PgConn) error) {
	for ctx.Err() == nil {
		if pg, err := postgres.Dial(ctx, e.target); err == nil {
			e.mu.Lock()
			e.own[pg.PID()] = true
			e.mu.Unlock()
			_ = f(ctx, pg) // it is lost; what was missed is found by looking
			closing, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = pg.Close(closing)
			cancel()
			e.mu.Lock()
			delete(e.own, pg.PID()) // the number may become another's
			e.mu.Unlock()
		}
		_ = sleep.For(ctx, reconnectPause)
	}
}

// notifyPause is between two notifications: each wakes every process, and the server for each.
const notifyPause = 4 * time.Millisecond

func (e *notifier) send(ctx context.Context, pg *pgconn.PgConn) error {
	for {
		signal := ""
		select {
		case <-e.kick:
		case signal = <-e.signals.waiting:
		case <-ctx.Done():
			return ctx.Err()
		}
		e.mu.Lock()
		pending := e.pending
		e.pending = Notification{}
		e.mu.Unlock()
		for _, payload := range pending.encode() {
			if err := notify(pg, e.channel, payload); err != nil {
				kept := pending.again()
				kept.Lost = true
				e.publish(kept)
				return err
			}
		}
		for range signalsAtOnce {
			if signal == "" {
				signal = e.signals.next()
			}
			if signal == "" {
				break
			}
			if err := notify(pg, e.signals.channel, signal); err != nil {
				return err
			}
			signal = ""
		}
		select {
		case <-time.After(notifyPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func notify(pg *pgconn.PgConn, channel, payload string) error {
	postgres.Within(pg, postgres.PostgresDial)
	return pg.ExecParams(context.Background(), "SELECT pg_notify($1, $2)", [][]byte{[]byte(channel), []byte(payload)},
		[]uint32{pgtype.TextOID, pgtype.TextOID}, nil, nil).Read().Err
}

func (e *notifier) notified(_ *pgconn.PgConn, n *pgconn.Notification) {
	e.mu.Lock()
	own := e.own[n.PID]
	e.mu.Unlock()
	switch {
	case own:
	case n.Channel == e.signals.channel:
		e.signals.heard.Notify(n.Payload)
	default:
		e.received(decodeNotification(n.Payload))
	}
}

// keepAlive is how often a silent listener makes sure that its connection still lives.
const keepAlive = 30 * time.Second

func (e *notifier) listen(ctx context.Context, pg *pgconn.PgConn) error {
	postgres.Within(pg, postgres.PostgresDial)
	for _, channel := range []string{e.channel, e.signals.channel} {
		if _, err := pg.Exec(ctx, fmt.Sprintf("LISTEN %q", channel)).ReadAll(); err != nil {
			return err
		}
	}
	e.received(&Notification{Lost: true}) // while nobody listened
	for {
		_ = pg.Conn().SetDeadline(time.Time{}) // the wait has a context
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		err := pg.WaitForNotification(waiting)
		silent := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && !silent {
			return err
		}
		if silent {
			if pg.IsClosed() {
				return driver.ErrDisconnected
			}
			postgres.Within(pg, postgres.PostgresDial)
			if err := pg.Ping(context.Background()); err != nil {
				return err
			}
		}
	}
}
