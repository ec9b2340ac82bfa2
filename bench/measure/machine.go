package measure

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// DescribeMachine says what the figures were measured on.
func DescribeMachine(b *Bench) string {
	how := "full run"
	if b.Quick {
		how = "quick run: less work and fewer rounds"
	}
	return fmt.Sprintf(`# Benchmark results

- date: %s (%s)
- processor: %s, %d cores
- kernel: %s
- file system of the data: %s
- Go: %s
- load average before the run: %s
`, time.Now().UTC().Format("2006-01-02 15:04 MST"), how, field("/proc/cpuinfo", "model name"), runtime.NumCPU(),
		FirstLine("/proc/sys/kernel/osrelease"), fileSystem(b.Dir), runtime.Version(), FirstLine("/proc/loadavg"))
}

// FirstLine returns the first line of a file in /proc or /sys.
func FirstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// field returns the first "key : value" of a file in /proc.
func field(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// fileSystem returns the type of the file system that holds the folder: that of the longest mount
// point above it.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	best, kind := "", ""
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && len(f[1]) >= len(best) && strings.HasPrefix(dir+"/", strings.TrimSuffix(f[1], "/")+"/") {
			best, kind = f[1], f[2]
		}
	}
	return cmp.Or(kind, "unknown")
}
