package durabletask

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
)

// grpc-go receives a whole message before it calls anybody, and as many at once as there are
// streams. So all calls are served as streams whose messages are read by hand. The length is
// read first, then memory is reserved, then the message is read. Before that a message takes no
// more than a stream's window.

// Bounds of received messages.
const (
	// streamWindow is how much a client may send before the message is read. It is the least
	// that grpc-go allows.
	streamWindow = 64 << 10
	// connectionWindow is the same for all streams of a connection together.
	connectionWindow = 1 << 20
	// freeWeight is the weight up to which messages are read without a reservation.
	freeWeight = 64 << 10
	// fieldWeight is the memory that a field may take beside its bytes.
	fieldWeight = 128
	// maxFields bounds the fields of a message, nested ones included.
	maxFields = 500_000
	// maxDepth bounds the nesting of messages.
	maxDepth = 64
	// headerTime is how long a message may take to begin.
	headerTime = 10 * time.Second
	// bytesPerSecond is the lowest rate at which a message may arrive.
	bytesPerSecond = 256 << 10
)

// poolMessages is how many of the largest messages fit into the memory for received messages, at
// least.
const poolMessages = 3

// reservation is the memory that a message holds. It is released once, when nobody needs the
// message any more.
type reservation struct {
	mu       sync.Mutex
	releases []func()
}

func (v *reservation) add(release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.releases = append(v.releases, release)
}

func (v *reservation) release() { giveAllBack(v.taken()) }

// taken empties the reservation and returns its release functions.
func (v *reservation) taken() []func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	releases := v.releases
	v.releases = nil
	return releases
}

func giveAllBack(releases []func()) {
	for _, release := range releases {
		release()
	}
}

// transportStream is what the transport streams of grpc-go offer beside
// grpc.ServerTransportStream.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

var errTransport = errors.New("the transport of grpc-go cannot be read from")

// receiver reads the message of a call.
type receiver struct {
	log        *slog.Logger
	stream     grpc.ServerStream
	pool       *memory.Pool
	tenant     string
	maxMessage int
	reserved   *reservation
}

// receive reads the message into m, until ctx ends or it takes too long. The caller releases
// what it reserves.
func (r *receiver) receive(ctx context.Context, m any) error {
	message, ok := m.(proto.Message)
	stream, reads := grpc.ServerTransportStreamFromContext(r.stream.Context()).(transportStream)
	if !ok || !reads {
		return errTransport
	}
	done, begun := make(chan error, 1), make(chan int, 1)
	own := &reservation{}
	go func() {
		done <- panics.Run(r.log, "reading a message", func() error { return r.read(ctx, stream, message, own, begun) })
	}()
	timer := time.NewTimer(headerTime)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			for _, release := range own.taken() {
				r.reserved.add(release)
			}
			return err
		case n := <-begun:
			timer.Reset(headerTime + 2*memory.Wait + time.Duration(n)*time.Second/bytesPerSecond)
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		// The read ends with the call.
		go func() {
			<-done
			own.release()
		}()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return status.Error(codes.DeadlineExceeded, "the message did not arrive in time")
	}
}

// read reads the message and reserves the memory for it.
func (r *receiver) read(ctx context.Context, stream transportStream, m proto.Message, own *reservation, begun chan<- int) error {
	var header [5]byte
	if err := stream.ReadMessageHeader(header[:]); err != nil {
		return status.Error(codes.InvalidArgument, "there is no message")
	}
	if header[0] != 0 {
		return status.Error(codes.Unimplemented, "compressed messages are not taken")
	}
	n := int64(binary.BigEndian.Uint32(header[1:]))
	if n > int64(r.maxMessage) {
		return status.Errorf(codes.ResourceExhausted, "the message has %d bytes; the limit is %d", n, r.maxMessage)
	}
	begun <- int(n)
	// A received message is in memory twice: its bytes, and the decoded message.
	claim := r.pool.Claim(r.tenant)
	own.add(claim.Release)
	if n > freeWeight {
		claim.Expect(2 * n)
		if err := claim.Grow(ctx, 2*n); err != nil {
			return err
		}
	}
	data, err := stream.Read(int(n))
	if err != nil {
		return status.Error(codes.InvalidArgument, "the message ended early")
	}
	bytes := data.MaterializeToBuffer(mem.DefaultBufferPool())
	data.Free()
	defer bytes.Free()
	fields := maxFields
	if err := countFields(m.ProtoReflect().Descriptor(), bytes.ReadOnlyData(), &fields, maxDepth); err != nil {
		return err
	}
	if weight := fieldWeight * int64(maxFields-fields); n > freeWeight || weight > freeWeight {
		if err := claim.Grow(ctx, weight); err != nil {
			return err
		}
	}
	raw := bytes.ReadOnlyData()
	if _, ok := m.(*protos.WorkflowResponse); ok {
		raw = withoutTraces(raw)
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return errMalformed
	}
	return nil
}

var errMalformed = status.Error(codes.InvalidArgument, "the message cannot be read")

// countFields subtracts the fields of a message from left. Two bytes of a message may become a
// hundred in memory.
func countFields(of protoreflect.MessageDescriptor, b []byte, left *int, depth int) error {
	if depth == 0 {
		return status.Errorf(codes.InvalidArgument, "the message is more than %d messages deep", maxDepth)
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return errMalformed
		}
		if *left--; *left < 0 {
			return status.Errorf(codes.InvalidArgument, "the message has more than %d fields", maxFields)
		}
		if field := of.Fields().ByNumber(number); field != nil && kind == protowire.BytesType && field.Message() != nil {
			inner, _ := protowire.ConsumeBytes(b)
			if err := countFields(field.Message(), inner, left, depth-1); err != nil {
				return err
			}
		} else if field != nil && kind == protowire.BytesType && field.IsList() && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind {
			// Packed numbers: one byte may become eight.
			if *left -= size / 8; *left < 0 {
				return status.Errorf(codes.InvalidArgument, "the message has more than %d fields", maxFields)
			}
		}
		b = b[size:]
	}
	return nil
}

// receipt holds the memory of the response to a work item until the item is done. The engine has
// the response for longer than the call lasts.
type receipt struct {
	mu   sync.Mutex
	over bool
	reservation
}

// keep takes over the reservation of a call, unless the work item is done.
func (t *receipt) keep(from *reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	for _, release := range from.taken() {
		t.add(release)
	}
}

type reservationKey struct{}

// expectAnswer keeps the memory of responses with this key reserved, until answered.
func (h *taskHub) expectAnswer(key string) { h.receipts.LoadOrStore(key, &receipt{}) }

// keepAnswer keeps the memory of the message that a call has brought.
func (h *taskHub) keepAnswer(ctx context.Context, key string) {
	reserved, ok := ctx.Value(reservationKey{}).(*reservation)
	if !ok {
		return
	}
	if t, expected := h.receipts.Load(key); expected {
		t.(*receipt).keep(reserved)
	}
}

func (h *taskHub) answered(key string) {
	t, expected := h.receipts.LoadAndDelete(key)
	if !expected {
		return
	}
	r := t.(*receipt)
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.release()
}
