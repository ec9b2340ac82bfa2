package bus

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// redriveVariable makes this test binary a process that redrives until it is killed: it holds a
// doomedRedrive as JSON.
const redriveVariable = "FOREBAY_TEST_REDRIVE"

// doomedRedrive is a process that sends the dead letters of a queue back at a pace, a few in each
// step. It prints how many each step has sent back once that is on disk.
type doomedRedrive struct {
	Where db.Options
	Queue string
}

func init() {
	raw, ok := os.LookupEnv(redriveVariable)
	if !ok {
		return
	}
	var d doomedRedrive
	err := json.Unmarshal([]byte(raw), &d)
	if err == nil {
		err = d.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the process that redrives came to its end:", err)
	os.Exit(1)
}

// slowPace is so slow that nothing becomes active while the test runs.
const slowPace = time.Hour

func (d doomedRedrive) run(ctx context.Context) error {
	d.Where.Serve = true
	s, err := openStores(ctx, d.Where)
	if err != nil {
		return err
	}
	q, found, err := s.Bus.MessageQueue(ctx, d.Queue)
	if err != nil || !found {
		return fmt.Errorf("there is no %s (%w)", d.Queue, err)
	}
	pace := dead.Pace{First: time.Now().Add(slowPace), Every: slowPace}
	for more := true; more; {
		step, err := s.Bus.DeadLetters().Redrive(ctx, q, dead.Selection{Limit: 3}, pace, nil)
		if err != nil {
			return err
		}
		more, pace.First = step.Done > 0, step.Next
		fmt.Println(step.Done)
	}
	select {} // all is done: wait for the kill
}

// A process is killed while it redrives at a pace. Each message is a dead letter still or
// scheduled, once, and what the process was told is done is done.
func TestKilledWhileRedriving(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const messages, kills = 400, 3
			where := database(t)
			s := fixture.Serve(t, where)
			q := named(t, s, "t/q", MessageQueue{})
			for at := 0; at < messages; at += 100 {
				send(t, s, q, numbered(at, 100)...)
			}
			for {
				got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 100, MaxBytes: 1 << 20})
				mustDo(t, err)
				if len(got) == 0 {
					break
				}
				for _, m := range got {
					mustDo(t, s.Bus.DeadLetter(t.Context(), q.Subqueue(false), m.Lock, DeadLettering{Reason: "r"}, nil))
				}
			}
			mustDo(t, s.DB.Close())
			raw, err := json.Marshal(doomedRedrive{where, q.Name})
			mustDo(t, err)
			self, err := os.Executable()
			mustDo(t, err)
			told := 0
			for kill := range kills {
				child := exec.Command(self)
				child.Env, child.Stderr = append(os.Environ(), redriveVariable+"="+string(raw)), os.Stderr
				out, err := child.StdoutPipe()
				mustDo(t, err)
				mustDo(t, child.Start())
				lines := bufio.NewScanner(out)
				count := func() {
					n, err := strconv.Atoi(lines.Text())
					mustDo(t, err)
					told += n
				}
				for n := 0; n < 3+kill && lines.Scan() && lines.Text() != "0"; n++ { // another step is under way then
					count()
				}
				mustDo(t, child.Process.Kill())
				for lines.Scan() {
					count()
				}
				if err := child.Wait(); err == nil || child.ProcessState.Exited() {
					t.Fatalf("the process was not killed: %v", err)
				}
				s := fixture.Serve(t, where)
				seen, scheduled := map[string]int{}, 0
				for _, m := range peekAll(t, s, q.Subqueue(true)) {
					seen[m.MessageID]++
				}
				for _, m := range peekAll(t, s, q.Subqueue(false)) {
					seen[m.MessageID]++
					if m.ScheduledAt == nil || m.DeadLetterReason != "" || m.Deliveries != 0 {
						t.Errorf("sent back: %+v", m)
					}
					scheduled++
				}
				mustDo(t, s.DB.Close())
				if len(seen) != messages {
					t.Fatalf("after kill %d there are %d messages of %d", kill, len(seen), messages)
				}
				for id, n := range seen {
					if n != 1 {
						t.Errorf("after kill %d %s is there %d times", kill, id, n)
					}
				}
				if scheduled < told || told == 0 {
					t.Errorf("after kill %d: %d are scheduled, and the process was told of %d", kill, scheduled, told)
				}
			}
		})
	}
}
