package bus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// commitVariable makes this test binary a process that commits until it is killed: it holds a
// doomedCommits as JSON.
const commitVariable = "FOREBAY_TEST_COMMIT"

// doomedCommits is a process that moves each message of a queue to another queue and a topic, a
// commit for each. It prints the subject of a message once its commit has returned.
type doomedCommits struct {
	Where           db.Options
	From, To, Topic string
}

func init() {
	raw, ok := os.LookupEnv(commitVariable)
	if !ok {
		return
	}
	var d doomedCommits
	err := json.Unmarshal([]byte(raw), &d)
	if err == nil {
		err = d.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the process that commits came to its end:", err)
	os.Exit(1)
}

// committers is how many commits are under way at once.
const committers = 4

func (d doomedCommits) run(ctx context.Context) error {
	d.Where.Serve = true
	s, err := openStores(ctx, d.Where)
	if err != nil {
		return err
	}
	queues := map[string]MessageQueue{}
	for _, name := range []string{d.From, d.To, d.Topic} {
		q, found, err := s.Bus.MessageQueue(ctx, name)
		if err != nil || !found {
			return fmt.Errorf("there is no %s (%w)", name, err)
		}
		queues[name] = q
	}
	var workers sync.WaitGroup
	ends := make([]error, committers)
	for i := range ends {
		workers.Go(func() { ends[i] = d.move(ctx, s, queues) })
	}
	workers.Wait()
	return errors.Join(ends...)
}

func (d doomedCommits) move(ctx context.Context, s *stores, queues map[string]MessageQueue) error {
	for {
		got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: queues[d.From], Max: 1, MaxBytes: 1 << 20, Wait: true})
		if err != nil {
			return err
		}
		m := got[0]
		_, err = s.Bus.Commit(ctx, []Step{
			sends(queues[d.To], content(m.Subject, 1), content(m.Subject+" again", 1)), completes(queues[d.From], m), sends(queues[d.Topic], content(m.Subject, 1)),
		})
		if errors.Is(err, forebay.ErrLockLost) { // on a slow machine: the message comes again
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(m.Subject)
	}
}

// A process is killed while it commits. Each commit has either done all its steps or none. What it
// was told is done is done.
func TestKilledWhileCommitting(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const messages, kills = 400, 4
			where := database(t)
			s := fixture.Serve(t, where)
			from, to := named(t, s, "t/from", MessageQueue{}), named(t, s, "t/to", MessageQueue{})
			from.Lock, from.MaxDeliveries = time.Second, 1000 // so that what the process held comes back
			from, _, err := s.Bus.PutMessageQueue(t.Context(), from, 10)
			mustDo(t, err)
			topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
			sub := subscribe(t, s, topic, "sub")
			for at := 0; at < messages; at += 100 {
				send(t, s, from, numbered(at, 100)...)
			}
			mustDo(t, s.DB.Close())
			raw, err := json.Marshal(doomedCommits{where, from.Name, to.Name, topic.Name})
			mustDo(t, err)
			self, err := os.Executable()
			mustDo(t, err)
			told := map[string]bool{}
			for kill := range kills {
				child := exec.Command(self)
				child.Env, child.Stderr = append(os.Environ(), commitVariable+"="+string(raw)), os.Stderr
				out, err := child.StdoutPipe()
				mustDo(t, err)
				mustDo(t, child.Start())
				lines := bufio.NewScanner(out)
				for n := 0; n < 10+kill && lines.Scan(); n++ { // other commits are under way then
					told[lines.Text()] = true
				}
				mustDo(t, child.Process.Kill())
				for lines.Scan() {
					told[lines.Text()] = true
				}
				if err := child.Wait(); err == nil || child.ProcessState.Exited() {
					t.Fatalf("the process was not killed: %v", err)
				}
				s := fixture.Serve(t, where)
				done := map[string]int{} // by subject: 1 and 10 in the queue, 100 in the topic, 1000 not completed
				for _, m := range peekAll(t, s, to.Subqueue(false)) {
					if subject, again := strings.CutSuffix(m.Subject, " again"); again {
						done[subject] += 10
					} else {
						done[m.Subject]++
					}
				}
				for _, m := range peekAll(t, s, sub.Subqueue(false)) {
					done[m.Subject] += 100
				}
				for _, m := range peekAll(t, s, from.Subqueue(false)) {
					done[m.Subject] += 1000
				}
				for i := range messages {
					subject := fmt.Sprint("m", i)
					switch state := done[subject]; {
					case state == 111:
						delete(told, subject)
					case state != 1000:
						t.Errorf("after kill %d a part of the commit of %s is done: %d", kill, subject, state)
					case told[subject]:
						t.Errorf("after kill %d the commit of %s is lost", kill, subject)
					}
				}
				mustDo(t, s.DB.Close())
			}
		})
	}
}
