package modelsim

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// callLog writes a line of JSON for each call. Lines are buffered for a moment.
type callLog struct {
	mu      sync.Mutex
	to      *bufio.Writer
	encoder *json.Encoder
	waits   bool  // a flush is due
	err     error // the first; nothing is written after it
}

// entry is one line. It holds nothing of the prompt or the answer.
type entry struct {
	At         time.Time `json:"at"` // when the call came
	Deployment string    `json:"deployment"`
	API        api       `json:"api"`
	Embed      bool      `json:"embed,omitempty"`
	Stream     bool      `json:"stream,omitempty"`
	Outcome    Outcome   `json:"outcome"`
	Status     int       `json:"status"` // 0: the connection was closed without one
	Refused    Dimension `json:"refused,omitempty"`
	RetryMS    int64     `json:"retry_after_ms,omitempty"`
	Charged    int       `json:"charged"` // tokens
	Prompt     int       `json:"prompt_tokens"`
	MaxOutput  int       `json:"max_output_tokens"`
	Output     int       `json:"output_tokens"`
	MS         float64   `json:"ms"` // until the call ended
}

func newCallLog(to io.Writer) *callLog {
	b := bufio.NewWriterSize(to, 64<<10)
	return &callLog{to: b, encoder: json.NewEncoder(b)}
}

// flushPause is how long a line may stay buffered.
const flushPause = 200 * time.Millisecond

func (l *callLog) write(e entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if l.err = l.encoder.Encode(e); l.err == nil && !l.waits {
		l.waits = true
		time.AfterFunc(flushPause, func() { _ = l.flush() })
	}
}

// flush writes the buffer out. It returns the first error of all writing.
func (l *callLog) flush() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = false
	if l.err == nil {
		l.err = l.to.Flush()
	}
	return l.err
}
