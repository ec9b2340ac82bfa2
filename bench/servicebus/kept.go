package servicebus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/Azure/go-amqp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	server "github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// keptAMQP is bareAMQP, but a message counts as sent once it is on disk, and what receivers settle
// is written there too. It knows no locks, no order and no queues: no server that promises to
// keep messages does less.
type keptAMQP struct {
	bareAMQP
	disk *disk
}

// startKeptAMQP starts one whose messages are in that file: a log, or a database of SQLite.
func startKeptAMQP(file string) func(context.Context, *measure.Bench) (*broker, error) {
	return func(ctx context.Context, b *measure.Bench) (*broker, error) {
		place, err := b.SQLite().Place(ctx)
		if err != nil {
			return nil, err
		}
		c, err := serving.StartChild(ctx, serving.ChildSpec{Role: "amqp", Database: filepath.Join(place.Dir, file)})
		if err != nil {
			return nil, errors.Join(err, place.Release())
		}
		return &broker{
			pid: c.PID, stop: func() error { return errors.Join(c.Stop(), place.Release()) },
			makes: func(context.Context, string) error { return nil },
			connect: func(ctx context.Context) (connection, error) {
				return dialAMQP(ctx, c.Address, amqp.SASLTypeAnonymous())
			},
		}, nil
	}
}

func (h keptAMQP) AttachIncoming(l *server.Incoming) {
	latency := wire.ValueOr(l.Attach().Target.Address, "") == latencyQueue
	_ = l.Accept(server.IncomingOptions{Credit: 1000, Receive: func(d *server.Delivery) {
		h.disk.keep(d.Payload, func() {
			if latency {
				h.passed <- d.Payload
			}
			d.Settle(&wire.Accepted{})
		})
	}})
}

func (h keptAMQP) AttachOutgoing(l *server.Outgoing) {
	h.send(l, server.OutgoingOptions{Settled: func(list []server.Settlement) {
		for _, s := range list {
			h.disk.keep(nil, func() { l.Settle(s.ID, s.State) })
		}
	}})
}

// disk keeps messages. Those that come while others are synced are synced together.
type disk struct {
	mu    sync.Mutex
	kick  sync.Cond
	texts [][]byte // nil: the oldest message is settled
	after []func()
}

// keep has a message written, or settled, and after called once that is on disk.
func (d *disk) keep(text []byte, after func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts, d.after = append(d.texts, text), append(d.after, after)
	d.kick.Signal()
}

func openDisk(path string) (*disk, error) {
	write, err := openLog(path)
	if strings.HasSuffix(path, ".db") {
		write, err = openTable(path)
	}
	if err != nil {
		return nil, err
	}
	d := &disk{}
	d.kick.L = &d.mu
	go d.run(write)
	return d, nil
}

func (d *disk) run(write func([][]byte) error) {
	var texts [][]byte
	var after []func()
	for {
		d.mu.Lock()
		for len(d.after) == 0 {
			d.kick.Wait()
		}
		texts, d.texts = d.texts, texts[:0]
		after, d.after = d.after, after[:0]
		d.mu.Unlock()
		if err := write(texts); err != nil {
			panic(err) // the benchmark fails
		}
		for _, done := range after {
			done()
		}
	}
}

// openLog appends to a file, and syncs it.
func openLog(path string) (write func([][]byte) error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	settled := make([]byte, 16)
	var records []byte
	return func(texts [][]byte) error {
		records = records[:0]
		for _, text := range texts {
			if text == nil {
				text = settled
			}
			records = append(records, text...)
		}
		_, err := f.Write(records)
		return errors.Join(err, f.Sync())
	}, nil
}

// openTable has a row for each message in one table, without an index. A message that is settled
// is deleted.
func openTable(path string) (write func([][]byte) error, err error) {
	c, err := sqlite.OpenConn(path)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{
		"PRAGMA page_size = 8192", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 8192",
		"CREATE TABLE messages (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)",
	} {
		if err := sqlitex.ExecuteTransient(c, sql, nil); err != nil {
			return nil, err
		}
	}
	var last, oldest int64
	return func(texts [][]byte) (err error) {
		defer sqlitex.Transaction(c)(&err)
		for _, text := range texts {
			var s *sqlite.Stmt
			if text == nil {
				oldest++
				s = c.Prep("DELETE FROM messages WHERE seq = ?")
				s.BindInt64(1, oldest)
			} else {
				last++
				s = c.Prep("INSERT INTO messages (seq, body) VALUES (?, ?)")
				s.BindInt64(1, last)
				s.BindBytes(2, text)
			}
			if _, err := s.Step(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
