// Package processes knows the processes that share a database, and the calls that they make.
//
// Each process writes a row every ten seconds, without waiting for the disk. A process that has
// the database for itself writes none: it answers from what it knows. A row goes when its process
// stops in order. One whose process was killed shows as gone after half a minute, and is removed
// after an hour. Until then it names the process of calls whose locks have not ended.
//
// # Calls
//
// A call is under way while a lock holds its job's message. The row of the message says where the
// call goes and which process makes it. No index has the locked rows alone, because each call
// would have to write it. They are found by their time: a lock ends within minutes. Of each flow
// of each queue the rows of these minutes are read, up to a bound.
package processes

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	// beatEvery is how often a process says that it lives.
	beatEvery = 10 * time.Second
	// goneAfter is after how long a silent one counts as gone, and forgetAfter when its row goes.
	goneAfter   = 30 * time.Second
	forgetAfter = time.Hour
	// maxProcesses bounds the rows that are read.
	maxProcesses = 1000
	maxHostBytes = 255
)

// idPrefix begins the id of a process.
const idPrefix = "proc_"

// Options describe this process.
type Options struct {
	DB      *db.DB
	Version string
	Role    string
	// Queues tells what it has for the jobs of each queue, and what of that is in use.
	Queues func() []forebay.ProcessQueue
	// Number is called with the number of this process, before it takes jobs.
	Number func(no int64)
	Logger *slog.Logger
}

// Service knows the processes.
type Service struct {
	Options
	self forebay.Process
	no   int64 // of the row; 0: there is none
}

// New returns the service of this process.
func New(o Options) *Service {
	host, err := os.Hostname()
	if err != nil || !forebay.ValidText(host, maxHostBytes) {
		host = "unknown"
	}
	return &Service{Options: o, self: forebay.Process{ID: ids.New(idPrefix), Host: host, PID: os.Getpid(), Version: o.Version, Role: o.Role,
		StartedAt: o.DB.Now().UTC(), State: forebay.ProcessRunning}}
}

// ID is the id of this process.
func (s *Service) ID() string { return s.self.ID }

// Enter writes the row of this process, if there may be others. It waits while the database cannot
// be reached: one that restarts must not end a process that begins.
func (s *Service) Enter(ctx context.Context) error {
	if !s.DB.Shared() {
		return nil
	}
	for {
		err := s.enter(ctx)
		if forebay.CodeOf(err) != forebay.CodeUnavailable || sleep.For(ctx, enterAgain) != nil {
			return err
		}
		s.Logger.Warn("cannot tell other processes of this one; trying again", slog.Any("error", err))
	}
}

// enterAgain is how long a process waits before it tries again to write its row.
const enterAgain = 500 * time.Millisecond

func (s *Service) enter(ctx context.Context) error {
	queues, err := json.Marshal(s.Queues())
	if err != nil {
		return err
	}
	s.no, err = db.Transact(ctx, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (no int64, err error) {
		_, err = t.Prep(sqlEnter).Text(s.self.ID).Text(s.self.Host).Int(int64(s.self.PID)).Text(s.self.Version).Text(s.self.Role).
			Int(t.Now).Int(t.Now).Blob(queues).One(func(r driver.Row) { no = r.Int(0) })
		return no, err
	})
	if err == nil {
		s.Number(s.no)
	}
	return err
}

const (
	sqlEnter = `INSERT INTO processes (id, host, pid, version, role, started_at, seen_at, queues) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at RETURNING no` // a commit may have been in doubt
	sqlBeat = `UPDATE processes SET seen_at = ?, draining = ?, queues = ? WHERE no = ?`
	// A row that somebody removed by mistake comes back.
	sqlReturn = `INSERT INTO processes (no, id, host, pid, version, role, started_at, seen_at, draining, queues) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlList   = `SELECT no, id, host, pid, version, role, started_at, seen_at, draining, queues FROM processes WHERE no > ? ORDER BY no LIMIT ? + 0`
	sqlForget = `DELETE FROM processes WHERE no = ? AND seen_at < ?`
	sqlLeave  = `DELETE FROM processes WHERE no = ?`
)

// Run says that this process lives until stopped ends, and that it stops from then on until left
// ends. Then it removes the row.
func (s *Service) Run(stopping, left context.Context) {
	if s.no == 0 {
		return
	}
	ctx := context.WithoutCancel(left)
	draining := false
	for left.Err() == nil {
		waits := stopping
		if draining {
			waits = left
		}
		_ = sleep.For(waits, beatEvery)
		draining = stopping.Err() != nil
		if left.Err() != nil {
			break
		}
		if err := s.Beat(ctx, draining); err != nil && left.Err() == nil {
			s.Logger.Debug("cannot tell other processes of this one; trying again", slog.Any("error", err))
		}
	}
	s.Leave(ctx)
}

// Leave removes the row of this process. Run does so itself.
func (s *Service) Leave(ctx context.Context) {
	if s.no == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := db.Transact(ctx, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		return struct{}{}, t.Prep(sqlLeave).Int(s.no).Exec()
	})
	if err != nil { // its row shows it as gone, soon
		s.Logger.Debug("cannot remove the row of this process", slog.Any("error", err))
	}
}

// Beat writes that this process lives, and removes rows of those that are long gone. It does not
// wait for the disk.
func (s *Service) Beat(ctx context.Context, draining bool) error {
	queues, err := json.Marshal(s.Queues())
	if err != nil {
		return err
	}
	var stops int64
	if draining {
		stops = 1
	}
	old, err := s.old(ctx)
	if err != nil {
		return err
	}
	_, err = db.Transact(ctx, s.DB.Writer, db.Op{Stage: db.StageChange, Volatile: true}, func(t *db.Tx) (struct{}, error) {
		for _, no := range old {
			if err := t.Prep(sqlForget).Int(no).Int(t.Now - forgetAfter.Milliseconds()).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		rows, err := t.Prep(sqlBeat).Int(t.Now).Int(stops).Blob(queues).Int(s.no).Count()
		if err == nil && rows == 0 {
			err = t.Prep(sqlReturn).Int(s.no).Text(s.self.ID).Text(s.self.Host).Int(int64(s.self.PID)).Text(s.self.Version).Text(s.self.Role).
				Int(s.self.StartedAt.UnixMilli()).Int(t.Now).Int(stops).Blob(queues).Exec()
		}
		return struct{}{}, err
	})
	return err
}

// old returns the numbers of rows whose processes are long gone.
func (s *Service) old(ctx context.Context) (old []int64, err error) {
	err = s.DB.Read(ctx, func(c driver.Conn) error {
		old = nil
		before := c.Now() - forgetAfter.Milliseconds()
		return c.Prep(sqlList).Int(0).Int(maxProcesses).Each(func(r driver.Row) error {
			if r.Int(7) < before && r.Int(0) != s.no {
				old = append(old, r.Int(0))
			}
			return nil
		})
	})
	return old, err
}

// List returns the processes, the oldest first.
func (s *Service) List(ctx context.Context) ([]forebay.Process, error) {
	if s.no == 0 {
		self := s.self
		self.SeenAt, self.Queues = s.DB.Now().UTC(), s.Queues()
		return []forebay.Process{self}, nil
	}
	var list []forebay.Process
	err := s.DB.Read(ctx, func(c driver.Conn) error {
		list = nil
		now := c.Now()
		return c.Prep(sqlList).Int(0).Int(maxProcesses).Each(func(r driver.Row) error {
			p := forebay.Process{ID: r.Text(1), Host: r.Text(2), PID: int(r.Int(3)), Version: r.Text(4), Role: r.Text(5),
				StartedAt: driver.FromMillis(r.Int(6)), SeenAt: driver.FromMillis(r.Int(7)), State: forebay.ProcessRunning}
			if r.Int(8) != 0 {
				p.State = forebay.ProcessDraining
			}
			if now-r.Int(7) > goneAfter.Milliseconds() {
				p.State = forebay.ProcessGone
			}
			if err := json.Unmarshal(r.Blob(9), &p.Queues); err != nil {
				return err
			}
			list = append(list, p)
			return nil
		})
	})
	return list, err
}
