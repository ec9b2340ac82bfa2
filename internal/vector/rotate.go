package vector

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// rotation mixes the numbers of a vector and keeps its length. It does the following twice:
// permute the numbers, flip the signs of some, and apply Hadamard transforms to blocks.
type rotation struct {
	rounds [2]struct {
		from  []int32
		signs []float32
	}
}

var rotations sync.Map // dimension → *rotation

func rotationOf(dimension int) *rotation {
	if known, ok := rotations.Load(dimension); ok {
		return known.(*rotation)
	}
	r := &rotation{}
	draw := rand.NewPCG(uint64(dimension), 0x466f7265626179) // codes are stored: it must never change
	for n := range r.rounds {
		round := &r.rounds[n]
		round.from, round.signs = make([]int32, dimension), make([]float32, dimension)
		for i := range round.from {
			j := int(draw.Uint64() % uint64(i+1))
			round.from[i] = round.from[j]
			round.from[j] = int32(i)
			round.signs[i] = 1 - 2*float32(draw.Uint64()>>63)
		}
	}
	known, _ := rotations.LoadOrStore(dimension, r)
	return known.(*rotation)
}

func (r *rotation) apply(v []float32) []float32 {
	for n := range r.rounds {
		round := &r.rounds[n]
		mixed := make([]float32, len(v))
		for i := range mixed {
			mixed[i] = round.signs[i] * v[round.from[i]]
		}
		for begin := 0; begin < len(mixed); {
			size := 1 << (bits.Len(uint(len(mixed)-begin)) - 1)
			hadamard(mixed[begin : begin+size])
			begin += size
		}
		v = mixed
	}
	return v
}

// hadamard transforms a block whose size is a power of two.
func hadamard(v []float32) {
	for half := 1; half < len(v); half *= 2 {
		for i := 0; i < len(v); i += 2 * half {
			for j := i; j < i+half; j++ {
				v[j], v[j+half] = v[j]+v[j+half], v[j]-v[j+half]
			}
		}
	}
	scale := float32(1 / math.Sqrt(float64(len(v))))
	for i := range v {
		v[i] *= scale
	}
}
