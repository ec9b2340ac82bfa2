package measure

import (
	"errors"
	"os"
	"runtime/pprof"
)

// Profile writes a CPU profile of this process to the file, until stop is called.
func Profile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
