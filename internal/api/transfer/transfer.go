// Package transfer moves the bodies of HTTP requests and answers. It bounds how slow a client may
// be, how large a body, and how much memory bodies hold. Memory and time are granted as bytes
// arrive, not by the announced size.
//
// A body is read whole ([Body.All]), as a stream ([Body]) or line by line ([Lines]). When the
// server stops, a transfer has little time left.
package transfer

import "time"

const (
	// FreeBytes is the size up to which bodies and lines are read without claiming memory.
	FreeBytes = 64 << 10
	// Timeout is how long a body or an answer may pause if it is not slower than the rates below.
	Timeout             = 30 * time.Second
	ReadBytesPerSecond  = 64 << 10
	WriteBytesPerSecond = 32 << 10
	// DrainTimeout is how long a transfer may pause while the server stops.
	DrainTimeout = 2 * time.Second
)

// Pace limits how slow a transfer may be. It holds the time left for the next part. Bytes that
// arrive add time, up to Timeout. Time between two parts does not count against the client.
type Pace struct {
	left           time.Duration
	bytesPerSecond int
}

// NewPace returns the pace of a transfer that may take Timeout to begin.
func NewPace(bytesPerSecond int) Pace { return Pace{Timeout, bytesPerSecond} }

// Left is how long the next part may take.
func (p *Pace) Left() time.Duration { return p.left }

// Hurry leaves at most DrainTimeout for the next part, and returns what is left.
func (p *Pace) Hurry() time.Duration {
	p.left = min(p.left, DrainTimeout)
	return p.left
}

// Moved counts a part of n bytes.
func (p *Pace) Moved(n int, took time.Duration) {
	p.left = min(Timeout, p.left-took+time.Duration(n)*time.Second/time.Duration(p.bytesPerSecond))
}
