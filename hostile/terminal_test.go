//go:build hostile

package hostile

import (
	"os"
	"syscall"
	"unsafe"
)

// unlockTerminal prepares the other side of a pseudo terminal and returns its number (man 4 pts).
func unlockTerminal(master *os.File) (number uint32, err error) {
	const setLock, getNumber = 0x40045431, 0x80045430 // TIOCSPTLCK, TIOCGPTN
	unlocked := int32(0)
	if err = ioctl(master, setLock, unsafe.Pointer(&unlocked)); err != nil {
		return 0, err
	}
	return number, ioctl(master, getNumber, unsafe.Pointer(&number))
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
