//go:build unix

package servertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"time"
	"unsafe"
)

// wrongClock is the clock of a process that has called skewClock.
var wrongClock struct {
	began, shown time.Time // the moment of that call: by the right clock, and by the wrong one
}

// skewClock makes this process's wall clock wrong by that many seconds. The monotonic clock stays
// right, as on a machine whose clock is set wrong. Go has no switch for it. So time.Now is
// overwritten with a jump to wrongNow, as a debugger sets a breakpoint. The other way is to
// compile everything anew with another time package, which takes minutes.
func skewClock(seconds int64) error {
	began := time.Now()
	shown := began
	// The first word of a Time with a monotonic reading has the seconds above 30 bits of
	// nanoseconds.
	*(*uint64)(unsafe.Pointer(&shown)) += uint64(seconds) << 30
	if by := shown.Round(0).Sub(began.Round(0)); by != time.Duration(seconds)*time.Second || shown.Sub(began) != 0 {
		return fmt.Errorf("the time package of this Go version is not as this test knows it: a wall clock would be ahead by %v", by)
	}
	wrongClock.began, wrongClock.shown = began, shown
	now := reflect.ValueOf(time.Now).Pointer()
	jump, err := jumpTo(reflect.ValueOf(wrongNow).Pointer(), now)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(jump, int64(now))
	return errors.Join(err, memory.Close())
}

// wrongNow stands in for time.Now. time.Since reads the monotonic clock alone.
func wrongNow() time.Time { return wrongClock.shown.Add(time.Since(wrongClock.began)) }

// ClocksCanBeWrong reports whether a process with ProcessOptions.Clock can be had on this machine.
func ClocksCanBeWrong() bool {
	_, err := jumpTo(0, 0)
	return runtime.GOOS == "linux" && err == nil
}

// jumpTo is the one instruction, at an address, that continues at another. One that is two
// instructions could be interrupted between them, where no stack could be read.
func jumpTo(target, at uintptr) ([]byte, error) {
	switch runtime.GOARCH {
	case "amd64":
		return binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(target-at-5)), nil
	case "arm64":
		return binary.LittleEndian.AppendUint32(nil, 5<<26|uint32(target-at)>>2&(1<<26-1)), nil
	}
	return nil, errors.New("no jump is known for this processor")
}
