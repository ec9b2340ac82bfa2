// Package vector finds the vectors nearest to one, by cosine. An [Index] holds one bit for each
// dimension of each vector and scans all of them, at a few nanoseconds each. It returns
// candidates. The caller, who has the vectors themselves, ranks them.
//
// A code is the signs of the vector after a fixed random rotation, with a factor that makes the
// estimated product unbiased. (RaBitQ: Gao and Long, SIGMOD 2024, sections 3.1 to 3.3.) The
// rotation depends only on the dimension, so codes can be stored.
package vector

import (
	"encoding/binary"
	"errors"
	"math"
)

// MaxDimensions bounds a vector.
const MaxDimensions = 8192

// ErrLength is returned for vectors and codes of different dimensions.
var ErrLength = errors.New("the vectors are not of one dimension")

// Unit returns v scaled to length 1. It reports false for a vector without a direction: all
// zeros, or one with a number that is not finite.
func Unit(v []float32) ([]float32, bool) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil, false
	}
	unit, scale := make([]float32, len(v)), 1/math.Sqrt(sum)
	for i, x := range v {
		unit[i] = float32(float64(x) * scale)
	}
	return unit, true
}

// Dot is the product of two vectors of one dimension, for unit vectors their cosine.
func Dot(a, b []float32) float64 {
	sum := 0.0
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// Bytes returns a vector as it is stored: each number as a little-endian float32.
func Bytes(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// FromBytes is the inverse of Bytes.
func FromBytes(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
