package model

import (
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestEstimateTokens(t *testing.T) {
	// Counts of the published o200k_base vocabulary.
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10} {
		if got := EstimateTokens(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestEstimateTokensOfLongTexts(t *testing.T) {
	for _, unit := range []string{"The quick brown fox jumps over the lazy dog. ", "模型调用很慢。", `{"key": [1, 2.5, null]}, `, "\xff\xfe"} {
		text := strings.Repeat(unit, 400_000/len(unit))
		want := countTokens(text)
		if got := EstimateTokens(text); got < want*95/100 || got > want*105/100 {
			t.Errorf("%.10q…: %d, want %d ± 5 %%", unit, got, want)
		}
	}
}

func TestEstimateTokensConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if n := EstimateTokens("hello world"); n != 2 {
				t.Errorf("%d", n)
			}
		})
	}
	wg.Wait()
}

func TestRuneStart(t *testing.T) {
	s := "aé€😀\xff\xff\xff\xff\xff"
	for i := range len(s) + 1 {
		j := runeStart(s, i)
		if j > i || i-j >= utf8.UTFMax {
			t.Errorf("byte %d: %d", i, j)
		}
		if i <= len("aé€😀") && !utf8.ValidString(s[:j]) {
			t.Errorf("byte %d splits a rune", i)
		}
	}
}

func FuzzEstimateTokens(f *testing.F) {
	f.Add("hello", 1)
	f.Add("\xff\x00é", 70_000)
	f.Add("\x7f", 70_000)
	f.Fuzz(func(t *testing.T, unit string, times int) {
		if times < 0 || times > 100_000 || len(unit)*times > 200_000 {
			return
		}
		text := strings.Repeat(unit, times)
		if n := EstimateTokens(text); n < 0 || n > len(text) || n == 0 && text != "" {
			t.Errorf("%d tokens for %d bytes", n, len(text))
		}
	})
}
