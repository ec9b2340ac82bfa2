package vector

import (
	"cmp"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/raced"
)

// clustered makes unit vectors around so many centres. All lean to one side, as embeddings do.
func clustered(draw *rand.Rand, n, dimension, centres int) [][]float32 {
	lean := make([]float32, dimension)
	for i := range lean {
		lean[i] = float32(draw.NormFloat64()) * 0.3
	}
	middle := make([][]float32, centres)
	for c := range middle {
		middle[c] = make([]float32, dimension)
		for i := range middle[c] {
			middle[c][i] = lean[i] + float32(draw.NormFloat64())
		}
	}
	vectors := make([][]float32, n)
	for k := range vectors {
		v := slices.Clone(middle[draw.IntN(centres)])
		for i := range v {
			v[i] += 0.7 * float32(draw.NormFloat64())
		}
		vectors[k], _ = Unit(v)
	}
	return vectors
}

func fill(t testing.TB, vectors [][]float32) *Index {
	t.Helper()
	x := NewIndex(len(vectors[0]))
	for i, v := range vectors {
		if err := x.Add(int64(i), Code(v)); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// recall is the share of the ten nearest that are among so many candidates.
func recall(t *testing.T, x *Index, vectors, queries [][]float32, candidates int) float64 {
	t.Helper()
	const nearest = 10
	hits := 0
	for _, q := range queries {
		exact, scores := make([]int64, len(vectors)), make([]float64, len(vectors))
		for i := range exact {
			exact[i], scores[i] = int64(i), Dot(q, vectors[i])
		}
		slices.SortFunc(exact, func(a, b int64) int { return cmp.Compare(scores[b], scores[a]) })
		found, err := x.Nearest(q, candidates)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range exact[:nearest] {
			if slices.Contains(found, id) {
				hits++
			}
		}
	}
	return float64(hits) / float64(nearest*len(queries))
}

func TestRecall(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	for _, dimension := range []int{100, 384, 1536} {
		draw := rand.New(rand.NewPCG(1, uint64(dimension)))
		all := clustered(draw, 4050, dimension, 60)
		vectors, queries := all[:4000], all[4000:]
		if got := recall(t, fill(t, vectors), vectors, queries, 200); got < 0.99 {
			t.Errorf("dimension %d: recall %.3f", dimension, got)
		}
	}
}

func TestIndexRemoves(t *testing.T) {
	draw := rand.New(rand.NewPCG(2, 2))
	vectors := clustered(draw, 300, 70, 5)
	x := fill(t, vectors)
	gone := map[int64]bool{}
	for i := range vectors {
		if i%3 == 0 {
			gone[int64(i)] = true
		}
	}
	x.Remove(gone)
	if x.Len() != 200 {
		t.Fatalf("%d are left", x.Len())
	}
	for i, v := range vectors {
		found, err := x.Nearest(v, 5)
		if err != nil || slices.Contains(found, int64(i)) == gone[int64(i)] {
			t.Errorf("%d, gone: %t, is found: %v, %v", i, gone[int64(i)], found, err)
		}
	}
	if found, err := x.Nearest(vectors[0], 1000); err != nil || len(found) != 200 {
		t.Errorf("%d of all, %v", len(found), err)
	}
}

func TestDimensionsAreChecked(t *testing.T) {
	x := NewIndex(64)
	if err := x.Add(1, make([]byte, 5)); !errors.Is(err, ErrLength) {
		t.Error(err)
	}
	if _, err := x.Nearest(make([]float32, 65), 1); !errors.Is(err, ErrLength) {
		t.Error(err)
	}
	for _, v := range [][]float32{{}, {0, 0}, {float32(math.NaN())}, {float32(math.Inf(1))}} {
		if _, ok := Unit(v); ok {
			t.Errorf("%v has a direction", v)
		}
	}
}

// Codes are stored, so a version that computes others could not search what an earlier one
// indexed.
func TestCodesNeverChange(t *testing.T) {
	unit, _ := Unit([]float32{1, -2, 3, -4, 5, -6, 7, -8, 9, 10})
	if got, want := hex.EncodeToString(Code(unit)), "440aba3e3603000000000000"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if back := FromBytes(Bytes(unit)); !slices.Equal(back, unit) {
		t.Errorf("%v", back)
	}
}

func BenchmarkNearest(b *testing.B) {
	draw := rand.New(rand.NewPCG(3, 3))
	x := fill(b, clustered(draw, 20_000, 384, 100))
	q := clustered(draw, 1, 384, 1)[0]
	for b.Loop() {
		if _, err := x.Nearest(q, 200); err != nil {
			b.Fatal(err)
		}
	}
}
