package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/forebayhq/forebay/server"
)

// cpuTime returns the processor time this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for the process itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// diskFlushes returns how many flushes the disk under the folder has done, for all processes, and
// whether the disk counts them. The count is field 16 of the kernel's block statistics.
func diskFlushes(dir string) (uint64, bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return 0, false
	}
	device := uint64(st.Dev)
	major, minor := device>>8&0xfff, device&0xff|device>>12&0xfff00
	f := strings.Fields(firstLine(fmt.Sprintf("/sys/dev/block/%d:%d/stat", major, minor)))
	if len(f) < 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[15], 10, 64)
	return n, err == nil && n > 0
}

// usage is what a process has used so far.
type usage struct {
	cpu      time.Duration
	reads    uint64 // system calls that read
	writes   uint64 // and that write
	switches uint64 // times one of its threads waited
}

// usageOf reads a process's usage from /proc. Processor time is summed over its threads, in
// nanoseconds, since the process's own figure moves in steps of 10 ms.
func usageOf(pid int) (u usage, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return u, fmt.Errorf("process %d has no threads in /proc", pid)
	}
	for _, thread := range threads {
		ran, err := strconv.ParseInt(strings.Fields(firstLine(thread + "/schedstat"))[0], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read processor time: %w", err)
		}
		u.cpu += time.Duration(ran)
		u.switches += number(field(thread+"/status", "voluntary_ctxt_switches"))
	}
	io := fmt.Sprintf("/proc/%d/io", pid)
	u.reads, u.writes = number(field(io, "syscr")), number(field(io, "syscw"))
	return u, nil
}

// memoryOf returns a figure of /proc/PID/status, such as VmHWM, in MB.
func memoryOf(pid int, key string) float64 {
	kilobytes := number(strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", pid), key), " kB"))
	return float64(kilobytes) * 1024 / 1e6
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// childVariable holds a childSpec for a process that this program starts of itself.
const childVariable = "FOREBAY_BENCH_CHILD"

// childSpec says what a child process is.
type childSpec struct {
	Role     string // "forebay", "bare", "proxy", "idle", "orchestrations", "simulator", "amqp" or "nats"
	Database string // forebay: as in server.Options
	Blobs    string // forebay: its folder
	Model    string // base URL of the model
	Profile  string // forebay: where its CPU profile goes; "": none
	// Deployments of forebay that serve chat, in this order; none: one at Model.
	Deployments []server.Deployment
	Queue       server.Queue // forebay: its queue "default"
	Simulator   string       // simulator: its deployments, as the file of "forebay sim" has them
	ServiceBus  string       // forebay: where it serves Service Bus's clients; "": nowhere
	Config      string       // nats: its configuration file
}

// child is a server in a process of its own, so that its memory and processor time are its own.
type child struct {
	pid     int
	address string // host:port
	url     string // of address
	bus     string // forebay: host:port for Service Bus's clients, if it serves them
	stop    func() error
}

// startChild starts this program as another process and waits until it serves.
func startChild(ctx context.Context, spec childSpec) (*child, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(encoded))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // the child lives until this closes
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{pid: cmd.Process.Pid, stop: func() error {
		stdin.Close()
		return cmd.Wait()
	}}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s did not start: %w", spec.Role, c.stop())
	}
	c.address, c.bus, _ = strings.Cut(strings.TrimSpace(line), " ")
	c.url = "http://" + c.address
	return c, nil
}
