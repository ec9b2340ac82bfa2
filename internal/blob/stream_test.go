package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/forebayhq/forebay"
)

// endless yields the same byte for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A stream of any size is stored without holding it in memory.
func TestPutStream(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, key, size := t.Context(), Key(1, "rev_1", "content"), int64(64<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stored, err := s.PutStream(ctx, key, io.LimitReader(endless{}, size), size)
	runtime.ReadMemStats(&after)
	if err != nil || stored != size {
		t.Fatalf("stored %d bytes: %v", stored, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d bytes of memory", took)
	}
	r, there, err := s.Get(ctx, key)
	if err != nil || there != size {
		t.Fatalf("%d bytes are there: %v", there, err)
	}
	defer r.Close()
	got, want := sha256.New(), sha256.New()
	if _, err := io.Copy(got, r); err != nil {
		t.Fatal(err)
	}
	io.Copy(want, io.LimitReader(endless{}, size))
	if string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Error("other bytes are there")
	}
}

// A stream that is too large, or whose reader fails, leaves nothing behind.
func TestPutStreamFails(t *testing.T) {
	broken := errors.New("broken")
	for _, address := range []string{"mem://", t.TempDir()} {
		s := open(t, address)
		for _, c := range []struct {
			name string
			r    io.Reader
			want error
		}{
			{"too large", endless{}, &forebay.Error{Code: forebay.CodePayloadTooLarge}},
			{"broken", io.MultiReader(io.LimitReader(endless{}, 100), failing{broken}), broken},
		} {
			key := Key(1, "rev_1", "content")
			if _, err := s.PutStream(t.Context(), key, c.r, 1<<20); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v", address, c.name, err)
			}
			if _, _, err := s.Get(context.Background(), key); forebay.CodeOf(err) != forebay.CodeNotFound {
				t.Errorf("%s, %s: something was stored (%v)", address, c.name, err)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
