package measure

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPUTime returns the processor time this process has used.
func CPUTime() time.Duration {
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
	f := strings.Fields(FirstLine(fmt.Sprintf("/sys/dev/block/%d:%d/stat", major, minor)))
	if len(f) < 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[15], 10, 64)
	return n, err == nil && n > 0
}

// Usage is what a process has used so far.
type Usage struct {
	CPU      time.Duration
	Reads    uint64 // system calls that read
	Writes   uint64 // and that write
	Switches uint64 // times one of its threads waited
}

// UsageOf reads a process's usage from /proc. Processor time is summed over its threads, in
// nanoseconds, since the process's own figure moves in steps of 10 ms.
func UsageOf(pid int) (u Usage, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return u, fmt.Errorf("process %d has no threads in /proc", pid)
	}
	for _, thread := range threads {
		ran, err := strconv.ParseInt(strings.Fields(FirstLine(thread + "/schedstat"))[0], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read processor time: %w", err)
		}
		u.CPU += time.Duration(ran)
		u.Switches += number(field(thread+"/status", "voluntary_ctxt_switches"))
	}
	io := fmt.Sprintf("/proc/%d/io", pid)
	u.Reads, u.Writes = number(field(io, "syscr")), number(field(io, "syscw"))
	return u, nil
}

// MemoryOf returns a figure of /proc/PID/status, such as VmHWM, in MB.
func MemoryOf(pid int, key string) float64 {
	kilobytes := number(strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", pid), key), " kB"))
	return float64(kilobytes) * 1024 / 1e6
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
