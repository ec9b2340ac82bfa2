package api

import (
	"encoding/json"
	"io"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/turns"
)

// writeJSON encodes an answer. A large answer is encoded in a turn of its tenant, once there is
// memory for it.
func writeJSON(w io.Writer, v any) error {
	out, ok := w.(*responseWriter)
	if !ok {
		return encode(w, v)
	}
	read := out.call.memory().Held()
	if read < turns.LargeBytes {
		return encode(w, v)
	}
	if err := out.claim(read); err != nil || out.mute {
		return err
	}
	out.claimed = read
	turn, err := turns.Take(out.call.r.Context())
	if err != nil {
		return err
	}
	defer turn.End()
	large := &largeAnswer{out: out, turn: turn}
	if job, ok := v.(forebay.SetAsideJob); ok {
		large.input, job.Input = job.Input, nil
		v = job
	}
	return encode(large, v)
}

// encode writes a value without a turn.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// largeAnswer ends the turn when the answer is encoded. Writing it depends on the client's speed.
type largeAnswer struct {
	out  *responseWriter
	turn *turns.Turn
	// input is the last member of the object. It is already JSON. Checking it again would take
	// longer than everything else.
	input json.RawMessage
}

func (l *largeAnswer) Write(object []byte) (int, error) {
	l.turn.End()
	parts := [][]byte{object}
	if l.input != nil {
		parts = [][]byte{object[:len(object)-len("}\n")], []byte(`,"input":`), l.input, []byte("}\n")}
	}
	for _, part := range parts {
		if _, err := l.out.Write(part); err != nil {
			return 0, err
		}
	}
	return len(object), nil
}
