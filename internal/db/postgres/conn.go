package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Conn is a connection to PostgreSQL. It speaks the extended protocol with prepared
// statements and binary values and nothing else. After an error that breaks the connection it is made
// anew by the next transaction.
type Conn struct {
	Config     *pgconn.Config
	Pg         *pgconn.PgConn
	statements map[string]*statement
	groups     []*group // statements of the transaction that are not sent yet
	pending    int      // executions of these
	memory     pendingMemory
	out        []byte       // messages to send
	result     answer       // of the last statement
	ahead      atomic.Int64 // milliseconds by which the server's clock is before ours; others read it too
	retry      time.Time    // no new connection is tried before
	backoff    time.Duration
	allowed    time.Duration     // what a transaction or a read may take
	serial     int               // of the last statement prepared
	open       bool              // a transaction is
	Shared     bool              // its presence is shared: see present
	Answers    string            // the requests that the process answers for which it stands: see announce
	reader     bool              // for reading only
	backend    int64             // the server's process behind the connection, which must stay the same
	warning    string            // that the server has sent with what is being answered; "": none
	wrote      bool              // the transaction has changed rows, by the tags of its statements
	fetched    *prefetched       // what was asked ahead; nil: nothing
	aheadForms map[string]string // statement → that for many sets of parameters
	trips      int64
	strand     *strand   // that runs; nil: none
	idle       []*strand // that are done
	wanted     []wanted  // by strands that are paused
	alone      bool      // the strand that runs is not to be paused
}

// What one transaction or one read may take before its connection is given up: the server, or the
// network to it, has gone. It is longer than the server lets a transaction wait for its client.
const (
	postgresPatience = 30 * time.Second
	PostgresDial     = 10 * time.Second
	maxReconnectWait = 2 * time.Second
)

// sqlSettings are those that not every version has: a cache of rows that are looked up once each is waste.
const sqlSettings = "SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'enable_memoize';"

const (
	SQLNow = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
)

// Connect connects to a server.
func Connect(ctx context.Context, config *pgconn.Config) (*Conn, error) {
	c := &Conn{Config: config, allowed: postgresPatience}
	return c, c.connect(ctx)
}

func (c *Conn) connect(ctx context.Context) error {
	if err := sleep.For(ctx, time.Until(c.retry)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, PostgresDial)
	defer cancel()
	config := c.Config.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.warning = n.Code + " " + n.Message
		}
	}
	pg, err := Dial(ctx, config)
	if err != nil {
		c.backoff = min(max(2*c.backoff, 50*time.Millisecond), maxReconnectWait)
		c.retry = time.Now().Add(c.backoff)
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	c.Pg, c.statements, c.open, c.backoff, c.idle = pg, map[string]*statement{}, false, 0, nil
	c.forgetPending()
	if c.Shared {
		if err := c.Present(SharedPresence); err != nil {
			c.Close() // until the copy is over
			return err
		}
	}
	if err := c.Announce(); err != nil {
		return err
	}
	if _, err := c.millis(applySettings(c.Config.RuntimeParams) + sqlSettings + SQLNow); err != nil {
		return err
	}
	if c.backend, err = c.millis(sqlBackend); err != nil {
		return err
	}
	return c.measureClock()
}

// measureClock learns how far the server's clock is ahead of ours.
func (c *Conn) measureClock() error {
	before := time.Now()
	server, err := c.millis(SQLNow)
	if err == nil {
		c.noteClock(server, before)
	}
	return err
}

func (c *Conn) noteClock(server int64, before time.Time) {
	middle := before.Add(time.Since(before) / 2)
	c.ahead.Store(server - middle.UnixMilli())
}

// millis runs statements by the simple protocol and returns the number that the last one yields.
func (c *Conn) millis(sql string) (n int64, err error) {
	c.patience()
	results, err := c.Pg.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return 0, c.failed(err)
	}
	_, err = fmt.Sscan(string(results[len(results)-1].Rows[0][0]), &n)
	return n, err
}

// patience gives what comes next its time. A deadline of the socket costs nothing, unlike a context.
func (c *Conn) patience() { Within(c.Pg, c.allowed) }

// Within bounds what comes next on a connection. Of a socket that is closed the next use tells.
func Within(pg *pgconn.PgConn, limit time.Duration) {
	_ = pg.Conn().SetDeadline(time.Now().Add(limit))
}

// failed marks an error after which the connection is broken.
func (c *Conn) failed(err error) error {
	if err != nil && c.Pg.IsClosed() {
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	return err
}

// sqlAssure has the commit of a transaction that only read wait as one that wrote does, until the standbys
// have what it saw. It writes a message that nobody reads.
const sqlAssure = "SELECT pg_logical_emit_message(true, 'forebay', '')"

// EnsureDurable has the commit say that what the transaction saw is as safe as what it wrote. A repeat of a request
// whose outcome was unknown finds rows that are committed here and that no standby has yet.
func (c *Conn) EnsureDurable() error {
	if c.wrote {
		return nil
	}
	for _, g := range c.groups {
		if plainInsert.MatchString(g.s.original) { // it adds a row or fails; one that selects what it adds may add none
			return nil
		}
	}
	s, err := c.Prepare(sqlAssure)
	if err != nil {
		return err
	}
	c.groups = append(c.groups, &group{s: s.(*statement), rows: [][][]byte{nil}})
	c.pending++
	return nil
}

// Commit sends what waits with it. A commit that the server answers with a warning may be undone by a failover:
// its wait for a standby has ended early, for the server then warns and says COMMIT all the same.
func (c *Conn) Commit() error {
	if err := c.unusedAhead(); err != nil {
		return err
	}
	c.fetched = nil
	if len(c.groups) == 0 {
		c.open = false
		return c.ExecSimple("COMMIT")
	}
	commit, err := c.Prepare("COMMIT")
	if err != nil {
		return err
	}
	c.warning = ""
	err = c.flush(commit.(*statement), nil)
	c.open = false
	if err != nil {
		return err
	}
	return committedBy(c.result.tag, c.result.warning)
}

// committedBy says what the server's answer to a COMMIT means.
func committedBy(tag pgconn.CommandTag, warning string) error {
	switch {
	case tag.String() != "COMMIT":
		return ErrRolledBack
	case warning != "":
		return fmt.Errorf("%w: %s", errUnconfirmed, warning)
	}
	return nil
}

var (
	// The server answers the COMMIT of a transaction that an error had ended with ROLLBACK.
	ErrRolledBack = errors.New("the transaction had failed and was rolled back")
	// errUnconfirmed marks a commit of which nobody knows whether it will last.
	errUnconfirmed = errors.New("the server committed with a warning")
)

func (c *Conn) Rollback() error {
	if c.Pg == nil || c.Pg.IsClosed() || c.Pg.TxStatus() == 'I' {
		return nil
	}
	c.open, c.fetched = false, nil
	c.forgetPending()
	return c.ExecSimple("ROLLBACK")
}

func (c *Conn) ExecSimple(sql string) error {
	c.trips++
	c.warning = ""
	results, err := c.Pg.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return c.failed(err)
	}
	if sql == "COMMIT" {
		return committedBy(results[len(results)-1].CommandTag, c.warning)
	}
	return nil
}

// Now asks the server on a connection for reading, which decides by it what a status is.
func (c *Conn) Now() int64 {
	if c.reader {
		if server, err := c.millis(SQLNow); err == nil {
			return server
		}
	}
	return time.Now().UnixMilli() + c.ahead.Load()
}

// RoundTrips is how many there were so far, but for those that prepare statements.
func (c *Conn) RoundTrips() int64 { return c.trips }

func (c *Conn) Arrays() bool { return true }

func (c *Conn) Close() error {
	if c.Pg == nil || c.Pg.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Pg.Close(ctx)
}

// TranslateError follows the classes of PostgreSQL's error codes (its manual, appendix A).
func (c *Conn) TranslateError(err error) error {
	if err == nil {
		return nil
	}
	var refused *pgconn.PgError
	var network net.Error
	unavailable := func() error {
		return forebay.Errorf(forebay.CodeUnavailable, "the database cannot be reached right now; try again").Caused(err)
	}
	switch {
	case errors.Is(err, errUnconfirmed):
		return forebay.Errorf(forebay.CodeUnavailable,
			"the database's standby has not confirmed the change, which may be lost or may last; repeat the request").Caused(err)
	case errors.Is(err, errPooled):
		return forebay.Errorf(forebay.CodeUnavailable, "%s", pooled).Caused(err)
	case errors.Is(err, ErrRolledBack):
		return forebay.Errorf(forebay.CodeUnavailable, "the database undid the change; try again").Caused(err)
	case errors.As(err, &refused) && refused.Code == NoSpace:
		return forebay.Errorf(forebay.CodeStorageFull, "the database's disk is full; nothing was stored").Caused(err)
	case errors.As(err, &refused):
		switch refused.Code[:2] {
		case "08", "53", "57", "58", "25", "40", "55", "28", "3D", "XX":
			return unavailable()
		}
	case errors.Is(err, driver.ErrDisconnected), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return unavailable()
	}
	return err
}

// statement is a statement that the server has prepared, or will when its parameters' types
// are known.
type statement struct {
	c        *Conn
	of       *statement // whose copy this is, for a strand; nil: none's
	original string     // as it is written
	sql      string     // as PostgreSQL takes it
	table    string     // that it changes, if it only does that
	name     string     // "": not prepared yet
	looked   bool
	template string // of those over arrays of the parameters; "": there are none
	variants map[columns]*statement
	types    []uint32
	values   [][]byte
	numbers  [][8]byte // where integers are encoded
	formats  []int16
	ran      bool
	rows     [][][]byte
	tag      pgconn.CommandTag
	at       int
}

var binaryResults = []int16{1}

func (c *Conn) Prepare(sql string) (driver.Prepared, error) {
	if c.Pg == nil || c.Pg.IsClosed() {
		return nil, driver.ErrDisconnected
	}
	s, ok := c.statements[sql]
	if !ok {
		translated, parameters := translate(sql)
		s = &statement{c: c, original: sql, sql: translated, types: make([]uint32, parameters), values: make([][]byte, parameters),
			numbers: make([][8]byte, parameters), formats: make([]int16, parameters)}
		for i := range s.formats {
			s.formats[i] = 1
		}
		if table := tableOf.FindStringSubmatch(sql); table != nil && !strings.Contains(sql, " RETURNING ") {
			s.table = table[1]
		}
		c.statements[sql] = s
	}
	if c.strand != nil {
		s = c.strand.clone(s)
	}
	s.Reset()
	return s, nil
}

func (s *statement) BindInt(i int, v int64) {
	binary.BigEndian.PutUint64(s.numbers[i-1][:], uint64(v))
	s.types[i-1], s.values[i-1] = pgtype.Int8OID, s.numbers[i-1][:]
}

func (s *statement) BindText(i int, v string) {
	s.types[i-1], s.values[i-1] = pgtype.TextOID, []byte(CleanText(v))
}

// CleanText replaces what a text in PostgreSQL cannot hold: NUL, and bytes that are not UTF-8.
func CleanText(v string) string {
	if strings.IndexByte(v, 0) >= 0 {
		v = strings.ReplaceAll(v, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(v, "\uFFFD")
}

func (s *statement) BindBytes(i int, v []byte) {
	s.types[i-1], s.values[i-1] = pgtype.ByteaOID, v
}

func (s *statement) BindNull(i int, k driver.Kind) {
	s.types[i-1] = [...]uint32{driver.KindInt: pgtype.Int8OID, driver.KindText: pgtype.TextOID, driver.KindBytes: pgtype.ByteaOID}[k]
	s.values[i-1] = nil
}

func (s *statement) Step() (bool, error) {
	if !s.ran {
		if err := s.run(); err != nil {
			return false, err
		}
	}
	s.at++
	if s.at < len(s.rows) {
		return true, nil
	}
	s.Reset()
	return false, nil
}

// run executes the statement and keeps all rows: another may run before they are read.
func (s *statement) run() error {
	c := s.c
	if a := c.fetched.take(s); a != nil {
		s.ran, s.rows, s.at = true, a.rows, -1
		s.tag = pgconn.NewCommandTag("AHEAD " + strconv.Itoa(len(a.rows)))
		return nil
	}
	if c.waits() {
		return s.runInStrand()
	}
	if !c.open {
		c.patience()
	}
	if len(c.groups) > 0 {
		if err := c.flush(s, s.values); err != nil {
			return err
		}
	} else {
		if err := c.send([]sending{{s, s.values}}, func(_ int, result answer) { c.result = result }); err != nil {
			return err
		}
	}
	s.ran, s.rows, s.tag, s.at = true, c.result.rows, c.result.tag, -1
	return nil
}

// ensure has the statement prepared.
func (s *statement) ensure() error {
	if s.of != nil {
		s = s.of
	}
	if s.name != "" {
		return nil
	}
	s.c.serial++
	name := fmt.Sprintf("s%d", s.c.serial)
	if _, err := s.c.Pg.Prepare(context.Background(), name, s.sql, s.types); err != nil {
		return s.c.failed(err)
	}
	s.name = name
	return nil
}

func (s *statement) Reset() {
	s.ran, s.rows, s.at = false, nil, -1
	for i := range s.values {
		s.values[i] = nil
	}
}

func (s *statement) IntAt(i int) int64 {
	switch v := s.rows[s.at][i]; len(v) {
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 1: // a boolean
		return int64(v[0])
	}
	return 0
}

func (s *statement) TextAt(i int) string { return string(s.rows[s.at][i]) }
func (s *statement) NullAt(i int) bool   { return s.rows[s.at][i] == nil }

func (s *statement) BytesAt(i int) []byte { return s.rows[s.at][i] }

// lookup is a join to a table that is looked up for each row.
var lookup = regexp.MustCompile(`\b(JOIN \w+ (\w+) ON (\w+)\.\w+ =) (\w+\.\w+)`)

// lookups has the planner look up what is joined, see [postgresSettings]. So what a statement walks stands first in it.
func lookups(sql string) string {
	return lookup.ReplaceAllStringFunc(sql, func(join string) string {
		parts := lookup.FindStringSubmatch(join)
		if parts[2] != parts[3] {
			return join
		}
		return parts[1] + " ANY (ARRAY[" + parts[4] + "])"
	})
}

// messageOrder is the order of messages that are ready, and of those of a queue; in SQLite's indexes the number of a row stands at the
// end by itself.
var messageOrder = regexp.MustCompile(`\b(visible, )((?:m\.)?seq)\b|\b(ORDER BY )(b\.seq)\b|\b(b\.lane = \S+ AND )(b\.seq)( >=? )`)

// translate turns ? and ?N into $N, leaves out SQLite's hints to its planner and puts in what PostgreSQL's needs. It returns how many
// parameters there are.
func translate(sql string) (translated string, parameters int) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(sql); i++ {
		switch rest := sql[i:]; {
		case sql[i] == '\'':
			quoted = !quoted
			b.WriteByte('\'')
		case quoted:
			b.WriteByte(sql[i])
		case strings.HasPrefix(rest, "CROSS JOIN "):
			i += len("CROSS ") - 1
		case strings.HasPrefix(rest, "INDEXED BY "):
			i += len("INDEXED BY ")
			for i < len(sql) && sql[i] != ' ' {
				i++
			}
		case sql[i] == '?':
			n := 0
			for i+1 < len(sql) && sql[i+1] >= '0' && sql[i+1] <= '9' {
				i++
				n = 10*n + int(sql[i]-'0')
			}
			if n == 0 {
				n = parameters + 1
			}
			parameters = max(parameters, n)
			fmt.Fprintf(&b, "$%d", n)
		default:
			b.WriteByte(sql[i])
		}
	}
	return messageOrder.ReplaceAllString(lookups(b.String()), "$1$3$5($2$4$6 + 0)$7"), parameters
}

// NoSpace is PostgreSQL's code for a disk that is full, or a file system of shared memory.
const NoSpace = "53100"

// SearchConfig is the configuration of connections for searches.
func SearchConfig(config *pgconn.Config) *pgconn.Config {
	searching := config.Copy()
	searching.RuntimeParams = maps.Clone(config.RuntimeParams)
	for _, name := range plannerSettings {
		delete(searching.RuntimeParams, name)
	}
	searching.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
	maps.Copy(searching.RuntimeParams, vectorSettings)
	return searching
}

// plannerSettings keep the plans of the queue's statements stable. Searches need other plans.
var plannerSettings = []string{
	"plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_material",
	"cpu_index_tuple_cost",
}

// vectorSettings are for connections that search: how many candidates an index looks at, and that it goes on
// if too few are the tenant's. It ends after so many (hnsw.max_scan_tuples), whatever it has.
var vectorSettings = map[string]string{"hnsw.ef_search": "400", "hnsw.iterative_scan": "relaxed_order"}
