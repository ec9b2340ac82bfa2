package modelsim

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each call is in the log soon, also the last of many.
func TestCallLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := newCallLog(&b)
		for n := 1; n < 6; n += 2 {
			l.write(entry{})
			l.write(entry{})
			<-time.After(2 * flushPause)
			synctest.Wait()
			if lines := strings.Count(b.String(), "\n"); lines != n+1 {
				t.Errorf("%d lines of %d calls", lines, n+1)
			}
		}
		if err := l.flush(); err != nil {
			t.Error(err)
		}
	})
}
