package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// wire sends statements to the server and receives their answers.
type wire struct {
	Pg      *pgconn.PgConn
	out     []byte        // messages to send
	allowed time.Duration // what a transaction or a read may take
	parsing []*statement  // whose texts were sent, and which the server has not prepared yet
	serial  int           // of the last statement that was to be prepared
	warning string        // sent by the server with the current answer; "": none
	wrote   bool          // the transaction has changed rows, by the tags of its statements
	trips   int64         // round trips so far
}

// answer is what a statement returned.
type answer struct {
	tag     pgconn.CommandTag
	rows    [][][]byte
	warning string // that came with it; "": none

	memory []byte // for values of the next rows
	spare  [][]byte
}

// add copies a row, several into one piece of memory: it is in the connection's buffer.
func (a *answer) add(values [][]byte) {
	const rows, piece = 16, 16 << 10
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if a.memory == nil || cap(a.memory)-len(a.memory) < size { // what is empty is not NULL
		a.memory = make([]byte, 0, max(size, min(piece, (1+len(a.rows))*size)))
	}
	if len(a.spare) < len(values) {
		a.spare = make([][]byte, min(rows, 1+len(a.rows))*len(values))
	}
	row := a.spare[:len(values):len(values)]
	a.spare = a.spare[len(values):]
	for i, v := range values {
		if v != nil {
			a.memory = append(a.memory, v...)
			row[i] = a.memory[len(a.memory)-len(v) : len(a.memory) : len(a.memory)]
		}
	}
	a.rows = append(a.rows, row)
}

// sending is one execution of a prepared statement.
type sending struct {
	s      *statement
	values [][]byte
}

// send executes statements in one round trip and hands over what each returns. It writes the
// messages itself, for pgconn also asks of each what its columns are (PostgreSQL's manual,
// section 55.2.3 "Extended Query"). What is not prepared yet is prepared in the same round trip.
func (c *wire) send(sendings []sending, took func(int, answer)) error {
	c.trips++
	defer c.unprepared()
	out, err := c.out[:0], error(nil)
	for _, x := range sendings {
		if out, err = c.encode(out, x); err != nil {
			return err
		}
	}
	if out, err = (&pgproto3.Sync{}).Encode(out); err != nil {
		return err
	}
	if c.out = out; cap(out) > maxPendingMemory {
		c.out = nil
	}
	// What is long is written while the answers are read: the server stops reading when nobody
	// takes those.
	const short = 16 << 10
	if len(out) <= short {
		if _, err = c.Pg.Conn().Write(out); err != nil {
			return c.broken(err)
		}
		return c.receive(took)
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Pg.Conn().Write(out)
		if err != nil {
			c.Pg.Conn().Close() // which ends the reading
		}
		written <- err
	}()
	err = c.receive(took) // closes the connection unless all is written and answered, which ends the writing
	if failed := <-written; failed != nil {
		return c.broken(failed)
	}
	return err
}

// encode appends the messages that execute a statement, and prepare it if need be.
func (c *wire) encode(out []byte, x sending) (_ []byte, err error) {
	s := x.s.shared()
	if s.name == "" {
		c.serial++
		s.name = fmt.Sprintf("s%d", c.serial)
		c.parsing = append(c.parsing, s)
		if out, err = (&pgproto3.Parse{Name: s.name, Query: s.sql, ParameterOIDs: s.types}).Encode(out); err != nil {
			return nil, err
		}
	}
	bind := pgproto3.Bind{PreparedStatement: s.name, ParameterFormatCodes: x.s.formats, Parameters: x.values, ResultFormatCodes: binaryResults}
	if out, err = bind.Encode(out); err != nil {
		return nil, err
	}
	return (&pgproto3.Execute{}).Encode(out)
}

// unprepared takes back the names of statements that the server has not prepared: it skips all
// that follows an error.
func (c *wire) unprepared() {
	for _, s := range c.parsing {
		s.name = ""
	}
	c.parsing = nil
}

// receive reads what the statements that were sent return.
func (c *wire) receive(took func(int, answer)) (refused error) {
	var result answer
	for i := 0; ; {
		message, err := c.Pg.ReceiveMessage(context.Background())
		if err != nil {
			return c.broken(err)
		}
		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			c.parsing = c.parsing[1:]
		case *pgproto3.DataRow:
			result.add(m.Values)
		case *pgproto3.CommandComplete:
			result.tag = pgconn.NewCommandTag(string(m.CommandTag))
			result.warning, c.warning = c.warning, ""
			c.wrote = c.wrote || result.tag.RowsAffected() > 0 && !result.tag.Select()
			took(i, result)
			result = answer{}
			i++
		case *pgproto3.ErrorResponse:
			refused = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return refused
		}
	}
}

// broken closes a connection of which nobody knows what comes next on it.
func (c *wire) broken(err error) error {
	closed, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Pg.Close(closed)
	return c.failed(err)
}

// millis runs statements by the simple protocol and returns the number that the last one yields.
func (c *wire) millis(sql string) (n int64, err error) {
	c.patience()
	results, err := c.Pg.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return 0, c.failed(err)
	}
	_, err = fmt.Sscan(string(results[len(results)-1].Rows[0][0]), &n)
	return n, err
}

// patience gives what comes next its time. A deadline of the socket costs nothing, unlike a
// context.
func (c *wire) patience() { Within(c.Pg, c.allowed) }

// Within bounds what comes next on a connection. Of a socket that is closed the next use tells.
func Within(pg *pgconn.PgConn, limit time.Duration) {
	_ = pg.Conn().SetDeadline(time.Now().Add(limit))
}

// failed marks an error after which the connection is broken.
func (c *wire) failed(err error) error {
	if err != nil && c.Pg.IsClosed() {
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	return err
}

func (c *wire) ExecSimple(sql string) error {
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

// RoundTrips is how many there were so far.
func (c *wire) RoundTrips() int64 { return c.trips }
