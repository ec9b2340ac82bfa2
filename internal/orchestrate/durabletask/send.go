package durabletask

import (
	"context"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay/internal/memory"
)

// grpc-go accepts a whole message of any size and keeps it until the client has read it. So a
// large message is counted against the tenant's memory before it is encoded, and its call waits
// until the last byte has left.

// Bounds of sent messages.
const (
	// answerTime is how long a client may take to read an answer, beside the time for its bytes
	// at bytesPerSecond.
	answerTime = time.Minute
	// workTime is the same for a work item. Some workers read the next item only after they have
	// finished one.
	workTime = 30 * time.Minute
)

// sender sends the messages of a call.
type sender struct {
	stream grpc.ServerStream
	pool   *memory.Pool
	tenant string
	claim  *memory.Claim // of the payloads of the answer
	hangUp func()        // closes the connection

	answerTime time.Duration
}

// send sends a message. A large one waits for memory first, and has left when send returns nil.
func (s *sender) send(ctx context.Context, m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return s.stream.SendMsg(m)
	}
	size := int64(proto.Size(message))
	if size <= freeWeight {
		return s.stream.SendMsg(m)
	}
	claim, limit, grow := s.claim, s.answerTime, (*memory.Claim).Grow
	if _, isWork := m.(*protos.WorkItem); isWork {
		// A work item is not dropped for want of memory: no other worker has it, and its
		// execution has a time limit of its own.
		claim, limit, grow = s.pool.Claim(s.tenant), workTime, (*memory.Claim).GrowPatiently
	}
	defer claim.Release()
	if err := grow(claim, ctx, size); err != nil {
		return err
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	claim.Shrink(max(size, int64(len(encoded))))
	// A status would queue behind the message. Only closing the connection frees what is not
	// read.
	overdue := time.AfterFunc(limit+time.Duration(size)*time.Second/bytesPerSecond, s.hangUp)
	defer overdue.Stop()
	out := &outgoing{bytes: encoded, gone: make(chan struct{})}
	if err := s.stream.SendMsg(out); err != nil {
		return err
	}
	select {
	case <-out.gone:
		return nil
	case <-s.stream.Context().Done():
		return s.stream.Context().Err()
	}
}

// outgoing is an encoded message. It is the pool of its own buffer, so it learns when the
// transport has released that.
type outgoing struct {
	bytes []byte
	gone  chan struct{}
	once  sync.Once
}

func (o *outgoing) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }
func (o *outgoing) Put(*[]byte)            { o.once.Do(func() { close(o.gone) }) }

// codec encodes messages, and passes on those that are encoded.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if out, ok := v.(*outgoing); ok {
		return mem.BufferSlice{mem.NewBuffer(&out.bytes, out)}, nil
	}
	return c.CodecV2.Marshal(v)
}
