package modelsim

import "math"

// embed hashes words, pairs of words and letter trigrams into a signed vector and scales it to
// length 1 (feature hashing: Weinberger et al., 2009). Texts that share words, or parts of words,
// have similar vectors.
func embed(text string, dimensions int) []float32 {
	sum := make([]float64, dimensions)
	add := func(h uint64, weight float64) {
		h = mix(h)
		if h>>63 == 1 {
			weight = -weight
		}
		sum[h%uint64(dimensions)] += weight
	}
	previous := uint64(0)
	for _, w := range words(text) {
		weight := 1.0
		if stopWords[w] {
			weight = 0.15
		}
		s := stem(w)
		h := fnv1a(fnvOffset, s)
		add(h, weight)
		if previous != 0 {
			add(previous*31+h, 0.4*weight)
		}
		previous = h
		padded := "^" + s + "$"
		for i := 0; i+3 <= len(padded); i++ {
			add(fnv1a(fnvOffset, padded[i:i+3])+1, 0.3*weight)
		}
	}
	norm := 0.0
	for _, v := range sum {
		norm += v * v
	}
	out := make([]float32, dimensions)
	if norm == 0 { // no words at all: all such texts are alike
		out[0] = 1
		return out
	}
	norm = math.Sqrt(norm)
	for i, v := range sum {
		out[i] = float32(v / norm)
	}
	return out
}

// mix spreads a hash over all its bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

const fnvOffset = 14695981039346656037

// fnv1a continues an FNV-1a hash, which begins as fnvOffset. It is the same in every process.
func fnv1a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// hash is FNV-1a over several texts, each with an end mark.
func hash(texts ...string) uint64 {
	h := uint64(fnvOffset)
	for _, s := range texts {
		h = fnv1a(fnv1a(h, s), "\xff")
	}
	return h
}
