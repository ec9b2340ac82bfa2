package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forebayhq/forebay/internal/sleep"
)

// news is what the processes that share a database tell each other after a commit. It only saves
// waiting: whoever misses it finds out by looking, a little later.
type news struct {
	ready     map[int64]int64          // subqueue → earliest time at which a message of it became ready, or roomAgain
	later     map[int64]int64          // subqueue → of those that were not ready yet when that was told, the earliest such time
	lines     map[int64]map[int64]bool // subqueue → lines of it in which one became ready; nil: too many to be named
	changed   []int64                  // jobs
	wake      int64                    // the earliest new deadline, for the same process; 0: none
	cancelled []int64                  // tokens of locks that a cancel voided
	work      map[int64]int64          // pool → earliest time at which work of it became ready
	queues    bool                     // a queue was made, changed, paused, resumed or dropped
	slots     bool                     // a call is over that was one of a limited number
	webhooks  bool                     // a webhook was made, changed, disabled or deleted
	keys      bool                     // an API key was made or revoked
	missed    bool                     // some was lost: anything may have happened
}

func (n *news) empty() bool {
	return len(n.ready) == 0 && len(n.changed) == 0 && len(n.cancelled) == 0 && len(n.work) == 0 && !n.queues && !n.slots && !n.webhooks && !n.keys && !n.missed
}

// Bounds of what is told at once; whatever is over is told as missed, or of a subqueue as lines to be found.
const (
	maxNewsChanged = 2000
	maxNewsReady   = 2000
	maxNewsLines   = 1000 // of a subqueue
	maxNewsBytes   = 7900 // a notification's payload has less than 8,000 bytes
)

func (n *news) add(other *news) {
	if n.ready == nil {
		n.ready = map[int64]int64{}
	}
	for subqueue, at := range other.ready {
		n.ready = earliest(n.ready, subqueue, at)
	}
	if len(n.ready) > maxNewsReady {
		n.ready, n.later, n.lines, n.missed = map[int64]int64{}, nil, nil, true
	}
	for subqueue, at := range other.later {
		n.later = earliest(n.later, subqueue, at)
	}
	for subqueue, numbers := range other.lines {
		for no := range numbers {
			n.addLine(subqueue, no)
		}
		if numbers == nil {
			n.manyLines(subqueue)
		}
	}
	if other.wake > 0 && (n.wake == 0 || other.wake < n.wake) {
		n.wake = other.wake
	}
	for pool, at := range other.work {
		n.addWork(pool, at)
	}
	n.cancelled = append(n.cancelled, other.cancelled...)
	n.queues, n.slots = n.queues || other.queues, n.slots || other.slots
	n.webhooks, n.keys, n.missed = n.webhooks || other.webhooks, n.keys || other.keys, n.missed || other.missed
	if len(n.changed)+len(other.changed) > maxNewsChanged {
		n.changed, n.missed = nil, true
		return
	}
	n.changed = append(n.changed, other.changed...)
}

// addLine adds a line in which a message became ready.
func (n *news) addLine(subqueue, no int64) {
	numbers, some := n.lines[subqueue]
	switch {
	case !some:
		if n.lines == nil {
			n.lines = map[int64]map[int64]bool{}
		}
		n.lines[subqueue] = map[int64]bool{no: true}
	case numbers == nil || numbers[no]:
	case len(numbers) == maxNewsLines:
		n.manyLines(subqueue)
	default:
		numbers[no] = true
	}
}

// manyLines notes that messages became ready in more lines of a subqueue than can be named.
func (n *news) manyLines(subqueue int64) {
	if n.lines == nil {
		n.lines = map[int64]map[int64]bool{}
	}
	n.lines[subqueue] = nil
}

// addWork adds a pool in which work became ready.
func (n *news) addWork(pool, at int64) { n.work = earliest(n.work, pool, at) }

// earliest notes a time for a key, unless an earlier one is known.
func earliest(times map[int64]int64, key, at int64) map[int64]int64 {
	if times == nil {
		times = map[int64]int64{}
	}
	if known, ok := times[key]; !ok || at < known {
		times[key] = at
	}
	return times
}

// encode writes the news as words, in as many payloads as needed.
func (n *news) encode() (payloads []string) {
	var b strings.Builder
	word := func(kind byte, numbers ...int64) {
		if b.Len() > maxNewsBytes-48 {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		b.WriteByte(kind)
		for i, v := range numbers {
			if i > 0 {
				b.WriteByte(':')
			}
			b.WriteString(strconv.FormatInt(v, 36))
		}
		b.WriteByte(' ')
	}
	if n.missed {
		word('*')
	}
	if n.queues {
		word('q')
	}
	if n.slots {
		word('s')
	}
	if n.webhooks {
		word('w')
	}
	if n.keys {
		word('k')
	}
	// Lines before the subqueues: whoever looks when it has heard of a subqueue knows them, though these are several payloads.
	for subqueue, numbers := range n.lines {
		for no := range numbers {
			word('l', subqueue, no)
		}
		if numbers == nil {
			word('m', subqueue)
		}
	}
	for subqueue, at := range n.ready {
		if later, ok := n.later[subqueue]; ok {
			word('r', subqueue, at, later)
		} else {
			word('r', subqueue, at)
		}
	}
	for pool, at := range n.work {
		word('o', pool, at)
	}
	for _, token := range n.cancelled {
		word('x', token)
	}
	last := int64(0)
	for _, seq := range n.changed {
		if seq != last { // most come in pairs
			word('c', seq)
		}
		last = seq
	}
	return append(payloads, b.String())
}

// decodeNews reads a payload. What it does not understand it takes for news that was missed.
func decodeNews(payload string) *news {
	n := &news{ready: map[int64]int64{}}
	for word := range strings.FieldsSeq(payload) {
		first, second, _ := strings.Cut(word[1:], ":")
		v, err := strconv.ParseInt(first, 36, 64)
		switch kind := word[0]; {
		case kind == 'q':
			n.queues = true
		case kind == 's':
			n.slots = true
		case kind == 'w':
			n.webhooks = true
		case kind == 'k':
			n.keys = true
		case kind == 'r' && err == nil:
			second, third, some := strings.Cut(second, ":")
			at, err := strconv.ParseInt(second, 36, 64)
			later, laterErr := strconv.ParseInt(third, 36, 64)
			if err != nil || some && laterErr != nil {
				n.missed = true
				continue
			}
			if n.ready[v] = at; some {
				n.later = earliest(n.later, v, later)
			}
		case kind == 'l' && err == nil:
			no, err := strconv.ParseInt(second, 36, 64)
			if err != nil {
				n.missed = true
				continue
			}
			n.addLine(v, no)
		case kind == 'm' && err == nil:
			n.manyLines(v)
		case kind == 'o' && err == nil:
			at, err := strconv.ParseInt(second, 36, 64)
			if err != nil {
				n.missed = true
				continue
			}
			n.addWork(v, at)
		case kind == 'x' && err == nil:
			n.cancelled = append(n.cancelled, v)
		case kind == 'c' && err == nil:
			n.changed = append(n.changed, v)
		default:
			n.missed = true
		}
	}
	return n
}

// exchange tells news to the other processes and hears theirs, over two connections of its own, so
// that no transaction waits for it: NOTIFY takes a lock that all commits of a server share.
type exchange struct {
	config  *pgconn.Config
	channel string
	heard   func(*news)
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	pending news
	kick    chan struct{}
	own     map[uint32]bool // process ids of our connections, whose notifications are no news
}

func newExchange(config *pgconn.Config) *exchange {
	e := &exchange{config: config.Copy(), channel: channelOf(config.RuntimeParams["search_path"]),
		kick: make(chan struct{}, 1), own: map[uint32]bool{}}
	e.config.OnNotification = e.notified
	return e
}

// maxChannelBytes is PostgreSQL's limit on names (NAMEDATALEN - 1).
const maxChannelBytes = 63

var plainPath = regexp.MustCompile(`^[A-Za-z0-9_$,. -]*$`)

// channelOf names the channel of the processes that use the same tables. What does not do as a name is
// told by its hash.
func channelOf(searchPath string) string {
	const prefix = "forebay_"
	if len(prefix)+len(searchPath) <= maxChannelBytes && plainPath.MatchString(searchPath) {
		return prefix + searchPath
	}
	hash := sha256.Sum256([]byte(searchPath))
	return prefix + hex.EncodeToString(hash[:16])
}

// start begins to tell, and to hand what it hears to heard.
func (e *exchange) start(heard func(*news)) {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.heard = heard
	e.running.Go(func() { e.always(ctx, e.tell) })
	e.running.Go(func() { e.always(ctx, e.listen) })
}

func (e *exchange) close() {
	e.stop()
	e.running.Wait()
}

// share hands news over to be told.
func (e *exchange) share(n *news) {
	e.mu.Lock()
	e.pending.add(n)
	e.mu.Unlock()
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// reconnectPause is how long a connection that was lost is left alone.
const reconnectPause = 500 * time.Millisecond

// always runs f with a connection, again and again.
func (e *exchange) always(ctx context.Context, f func(context.Context, *pgconn.PgConn) error) {
	for ctx.Err() == nil {
		if pg, err := dialPostgres(ctx, e.config); err == nil {
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

// tellPause is between two notifications: each wakes every process, and the server for each.
const tellPause = 4 * time.Millisecond

func (e *exchange) tell(ctx context.Context, pg *pgconn.PgConn) error {
	for {
		select {
		case <-e.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
		e.mu.Lock()
		pending := e.pending
		e.pending = news{}
		e.mu.Unlock()
		for _, payload := range pending.encode() {
			within(pg, postgresDial)
			result := pg.ExecParams(context.Background(), "SELECT pg_notify($1, $2)", [][]byte{[]byte(e.channel), []byte(payload)},
				[]uint32{pgtype.TextOID, pgtype.TextOID}, nil, nil).Read()
			if result.Err != nil {
				e.share(&news{missed: true, queues: true, cancelled: pending.cancelled})
				return result.Err
			}
		}
		select {
		case <-time.After(tellPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *exchange) notified(_ *pgconn.PgConn, n *pgconn.Notification) {
	e.mu.Lock()
	own := e.own[n.PID]
	e.mu.Unlock()
	if !own {
		e.heard(decodeNews(n.Payload))
	}
}

// keepAlive is how often a silent listener makes sure that its connection still lives.
const keepAlive = 30 * time.Second

func (e *exchange) listen(ctx context.Context, pg *pgconn.PgConn) error {
	within(pg, postgresDial)
	if _, err := pg.Exec(ctx, fmt.Sprintf("LISTEN %q", e.channel)).ReadAll(); err != nil {
		return err
	}
	e.heard(&news{missed: true, queues: true}) // while nobody listened
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
				return errDisconnected
			}
			within(pg, postgresDial)
			if err := pg.Ping(context.Background()); err != nil {
				return err
			}
		}
	}
}
