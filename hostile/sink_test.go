//go:build hostile

package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sinkVariable makes this test binary a sink: it holds a traffic as JSON.
const sinkVariable = "FOREBAY_HOSTILE_SINK"

// traffic is what an attack came to at the server, for the sink to answer alike.
type traffic struct {
	Took     time.Duration
	Answers  int
	Statuses map[int]int // of HTTP
	Bytes    int64       // of all answers
}

// add takes in what an attacker did in that time.
func (t *traffic) add(r attackReport, took time.Duration) {
	t.Took += took
	t.Bytes += r.Bytes
	if t.Statuses == nil {
		t.Statuses = map[int]int{}
	}
	for what, n := range r.Did {
		if what == unanswered || what == failed {
			continue
		}
		t.Answers += n
		if code, err := strconv.Atoi(what); err == nil {
			t.Statuses[code] += n
		}
	}
}

// sink is a bare target for an attack. It reads what comes, unless it is to refuse it, and
// discards it. It gives as many answers a second as the server did, with the same statuses and
// lengths. It does nothing else, so the victim notices only what the traffic costs a shared
// machine.
type sink struct {
	traffic
	mu    sync.Mutex
	begun time.Time
	given int
	times map[int]int // that each status was given
}

// turn waits until the next answer is due and returns its status and length. Where the server
// gave no answer, none is due before the client leaves.
func (s *sink) turn(ctx context.Context) (status, length int) {
	if s.Answers == 0 {
		<-ctx.Done()
		return http.StatusOK, 0
	}
	s.mu.Lock()
	s.given++
	at := s.begun.Add(s.Took * time.Duration(s.given) / time.Duration(s.Answers))
	length = int(s.Bytes / int64(s.Answers))
	status = http.StatusOK
	owed := 0.0
	for code, n := range s.Statuses {
		if due := float64(s.given)*float64(n)/float64(s.Answers) - float64(s.times[code]); due > owed {
			status, owed = code, due
		}
	}
	s.times[status]++
	s.mu.Unlock()
	pause(ctx, time.Until(at))
	return status, length
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, length := s.turn(r.Context())
	if status < http.StatusBadRequest {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(status)
	for zeros := make([]byte, 32<<10); length > 0; {
		n, err := w.Write(zeros[:min(length, len(zeros))])
		if err != nil {
			return
		}
		length -= n
	}
}

func (s *sink) grpc(_ any, stream grpc.ServerStream) error {
	s.turn(stream.Context())
	return status.Error(codes.Unauthenticated, "no key")
}

// runSink serves until standard input ends.
func runSink(raw string) int {
	s := &sink{begun: time.Now(), times: map[int]int{}}
	if err := json.Unmarshal([]byte(raw), &s.traffic); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var addresses [2]string
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		listeners[i], addresses[i] = l, l.Addr().String()
	}
	go func() { _ = http.Serve(listeners[0], s) }()
	go func() { _ = grpc.NewServer(grpc.UnknownServiceHandler(s.grpc)).Serve(listeners[1]) }()
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startSink starts a sink and returns where it is, by HTTP and by gRPC.
func startSink(t testing.TB, like traffic) (url, grpcAddress string, stop func()) {
	t.Helper()
	raw, err := json.Marshal(like)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), sinkVariable+"="+string(raw)), t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the sink did not end as it should: %v", err)
		}
	}
	var addresses [2]string
	if line, err := bufio.NewReader(out).ReadBytes('\n'); err != nil || json.Unmarshal(line, &addresses) != nil {
		stop()
		t.Fatalf("the sink does not listen: %q, %v", line, err)
	}
	return "http://" + addresses[0], addresses[1], stop
}

// The sink answers as often as it is to, with the statuses that it is to give.
func TestSink(t *testing.T) {
	s := &sink{traffic: traffic{Took: time.Second, Answers: 1000, Statuses: map[int]int{200: 250, 429: 750}, Bytes: 5000}, begun: time.Now(), times: map[int]int{}}
	begun := time.Now()
	for range 40 {
		if _, length := s.turn(t.Context()); length != 5 {
			t.Fatalf("an answer has %d bytes", length)
		}
	}
	if took := time.Since(begun); took < 40*time.Millisecond || s.times[200] != 10 || s.times[429] != 30 {
		t.Errorf("40 answers took %s, and were %v", took, s.times)
	}
}
