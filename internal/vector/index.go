package vector

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/forebayhq/forebay/internal/panics"
)

// Code returns the code of a unit vector: its factor as a little-endian float32 and then its bits.
func Code(unit []float32) []byte {
	rotated := rotationOf(len(unit)).apply(unit)
	words := make([]uint64, wordsOf(len(unit)))
	sum := 0.0
	for i, x := range rotated {
		sum += math.Abs(float64(x))
		if x > 0 {
			words[i/64] |= 1 << (i % 64)
		}
	}
	code := binary.LittleEndian.AppendUint32(make([]byte, 0, CodeBytes(len(unit))), math.Float32bits(float32(1/sum)))
	for _, w := range words {
		code = binary.LittleEndian.AppendUint64(code, w)
	}
	return code
}

// CodeBytes is the size of the codes of vectors of that dimension.
func CodeBytes(dimension int) int { return 4 + 8*wordsOf(dimension) }

func wordsOf(dimension int) int { return (dimension + 63) / 64 }

// Index holds codes of vectors of one dimension. Only Nearest may be called concurrently.
type Index struct {
	dimension int
	words     int
	ids       []int64
	factors   []float32
	ones      []uint16 // bits that are set
	codes     []uint64
}

// NewIndex returns an empty index.
func NewIndex(dimension int) *Index { return &Index{dimension: dimension, words: wordsOf(dimension)} }

// Len is how many vectors it holds.
func (x *Index) Len() int { return len(x.ids) }

// Dimension is the dimension of its vectors.
func (x *Index) Dimension() int { return x.dimension }

// Bytes is about how much memory it takes.
func (x *Index) Bytes() int64 { return int64(cap(x.ids))*14 + int64(cap(x.codes))*8 }

// Add adds a vector by its code.
func (x *Index) Add(id int64, code []byte) error {
	if len(code) != CodeBytes(x.dimension) {
		return ErrLength
	}
	ones := 0
	for w := range x.words {
		word := binary.LittleEndian.Uint64(code[4+8*w:])
		ones += bits.OnesCount64(word)
		x.codes = append(x.codes, word)
	}
	x.ids, x.ones = append(x.ids, id), append(x.ones, uint16(ones))
	x.factors = append(x.factors, math.Float32frombits(binary.LittleEndian.Uint32(code)))
	return nil
}

// Remove removes those vectors.
func (x *Index) Remove(gone map[int64]bool) {
	kept := 0
	for i, id := range x.ids {
		if gone[id] {
			continue
		}
		x.ids[kept], x.factors[kept], x.ones[kept] = id, x.factors[i], x.ones[i]
		copy(x.codes[kept*x.words:(kept+1)*x.words], x.codes[i*x.words:])
		kept++
	}
	x.ids, x.factors, x.ones, x.codes = x.ids[:kept], x.factors[:kept], x.ones[:kept], x.codes[:kept*x.words]
}

// planes is the bits of each dimension of a query. Plane j holds bit j of all dimensions.
const planes = 4

// query is a unit vector to compare codes with.
type query struct {
	low, step, sum float32
	planes         [planes][]uint64
}

func newQuery(unit []float32) query {
	rotated := rotationOf(len(unit)).apply(unit)
	q := query{low: slices.Min(rotated)}
	q.step = max((slices.Max(rotated)-q.low)/(1<<planes-1), math.SmallestNonzeroFloat32)
	for j := range q.planes {
		q.planes[j] = make([]uint64, wordsOf(len(unit)))
	}
	for i, x := range rotated {
		level := uint64(math.Round(float64((x - q.low) / q.step)))
		q.sum += q.low + float32(level)*q.step
		for j := range q.planes {
			q.planes[j][i/64] |= (level >> j & 1) << (i % 64)
		}
	}
	return q
}

// parallelFrom is how many codes are worth another goroutine.
const parallelFrom = 8192

// Nearest returns the ids of up to n vectors that are probably nearest to a unit vector, nearest
// first.
func (x *Index) Nearest(unit []float32, n int) ([]int64, error) {
	if len(unit) != x.dimension {
		return nil, ErrLength
	}
	if n <= 0 || x.Len() == 0 {
		return nil, nil
	}
	q := newQuery(unit)
	parts := max(1, min(runtime.GOMAXPROCS(0), x.Len()/parallelFrom))
	found, errs := make([]candidates, parts), make([]error, parts)
	var running sync.WaitGroup
	for p := range parts {
		running.Go(func() {
			errs[p] = panics.Run(slog.Default(), "a search of vectors", func() error {
				found[p] = x.scan(&q, p*x.Len()/parts, (p+1)*x.Len()/parts, n)
				return nil
			})
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.at, b.at)) })
	ids := make([]int64, min(n, len(all)))
	for i := range ids {
		ids[i] = x.ids[all[i].at]
	}
	return ids, nil
}

// scan estimates the products of a range of codes with the query and returns the n highest.
func (x *Index) scan(q *query, from, to, n int) candidates {
	best := make(candidates, 0, n)
	p0, p1, p2, p3 := q.planes[0], q.planes[1], q.planes[2], q.planes[3]
	for i := from; i < to; i++ {
		code := x.codes[i*x.words : (i+1)*x.words]
		var n0, n1, n2, n3 int
		for w, bitsOf := range code {
			n0 += bits.OnesCount64(bitsOf & p0[w])
			n1 += bits.OnesCount64(bitsOf & p1[w])
			n2 += bits.OnesCount64(bitsOf & p2[w])
			n3 += bits.OnesCount64(bitsOf & p3[w])
		}
		// Twice the sum of the query's numbers where the vector's are positive, less the sum of all.
		positive := q.low*float32(x.ones[i]) + q.step*float32(n0+2*n1+4*n2+8*n3)
		score := (2*positive - q.sum) * x.factors[i]
		switch {
		case len(best) < n:
			heap.Push(&best, candidate{score, i})
		case score > best[0].score:
			best[0] = candidate{score, i}
			heap.Fix(&best, 0)
		}
	}
	return best
}

type candidate struct {
	score float32
	at    int
}

// candidates is a heap with the lowest score first.
type candidates []candidate

func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return c[i].score < c[j].score }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push implements heap.Interface.
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }

// Pop implements heap.Interface.
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
