package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/turns"
)

func TestEstimateTokens(t *testing.T) {
	// Counts of the published o200k_base vocabulary.
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10} {
		if got := EstimateTokens(nil, text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestEstimateTokensOfLongTexts(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	for _, unit := range []string{"The quick brown fox jumps over the lazy dog. ", "模型调用很慢。", `{"key": [1, 2.5, null]}, `, "\xff\xfe"} {
		text := strings.Repeat(unit, 400_000/len(unit))
		want := countTokens(nil, text)
		if got := EstimateTokens(nil, text); got < want*95/100 || got > want*105/100 {
			t.Errorf("%.10q…: %d, want %d ± 5 %%", unit, got, want)
		}
	}
}

// costlyUnits are what texts are repetitions of that a tokenizer may need long for.
var costlyUnits = []string{" ", "\n", " \n", "\n        ", "\t\n\r ", "\u00a0\n", "a", "A", "Aa", "1", "模", "😀", "🇩🇪", "\xff\xfe", "e\u0301",
	"\u0301", "!", "/", "'", "!\n", "'s", "ʰ", "ǅ", "\u200d", "\x00", "\x7f", "a\n \n", " \n1\n", "ᄀ", "\u2028 \n"}

func TestCountingTokensTakesTimeInProportionToTheText(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	countTokens(nil, "") // loads the vocabulary
	const size = exactBytes / 4
	least := func(text string) time.Duration { // of some, for other processes run too
		best := time.Hour
		for range 3 {
			began := time.Now()
			EstimateTokens(nil, text)
			best = min(best, time.Since(began))
		}
		return best
	}
	for _, unit := range costlyUnits {
		long := strings.Repeat(unit, 4*size/len(unit))
		// Four times as much takes four times as long. By the square it would be sixteen times,
		// however often it is tried.
		for tries := 1; ; tries++ {
			short, all := least(long[:len(long)/4]), least(long)
			if all <= 9*short+600*time.Millisecond {
				break
			}
			if tries == 5 {
				t.Errorf("%q: %v for %d bytes, %v for %d", unit, short, len(long)/4, all, len(long))
				break
			}
		}
	}
}

func TestManyTextsOfOneRequestAreSampled(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	unit := "The quick brown fox jumps over the lazy dog. "
	one := countTokens(nil, unit)
	for _, size := range []int{1, 100, 10_000, 60_000, 200_000} { // of each text, in bytes
		for _, total := range []int{400_000, 2_000_000} {
			texts := make([]string, total/size)
			for i := range texts {
				texts[i] = strings.Repeat(unit, size/len(unit)+1)[:size]
			}
			want := size * len(texts) * one / len(unit)
			if size == 1 { // each is a token
				want = len(texts)
			}
			if got := estimateAll(nil, texts); got < want*9/10 || got > want*11/10 {
				t.Errorf("%d texts of %d bytes: %d, want %d ± 10 %%", len(texts), size, got, want)
			}
		}
	}
}

func TestPiecesAreCountedLikeTheWhole(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"word", "Word", "WORD", "it's", "don'T", "naïve", "e\u0301a", "模型调用", "。", "，", "12345", "3.14", "(", ")", "{\"k\": [1]}", "...", "!?", "/path/to",
		"\n", "\r\n", "\n\n", "\t", " ", "    ", "😀", "👩‍👩‍👧", "\u00a0", "\xff", "ʼn", "ﬁ", "Ⅷ", "#", "--", "\n/", "ᄀ", "٣", "\u200b"}
	for range 300 {
		var b strings.Builder
		for b.Len() < 1200 {
			b.WriteString(words[r.IntN(len(words))])
			for range r.IntN(3) {
				b.WriteByte(' ')
			}
		}
		if got, want := countTokens(nil, b.String()), countPiece(b.String()); got != want {
			t.Errorf("%d tokens, %d in one piece: %q", got, want, b.String())
		}
	}
	for _, unit := range costlyUnits { // where nothing parts them
		text := strings.Repeat(unit, 4*pieceBytes/len(unit))
		if got, want := countTokens(nil, text), countPiece(text); got < want || got > want+5 {
			t.Errorf("%q: %d tokens, %d in one piece", unit, got, want)
		}
	}
}

func TestEstimateTokensConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if n := EstimateTokens(nil, "hello world"); n != 2 {
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
		if n := EstimateTokens(nil, text); n < 0 || n > len(text) || n == 0 && text != "" {
			t.Errorf("%d tokens for %d bytes", n, len(text))
		}
	})
}

// Whoever waits for a count has it only in one of the places that the process has for long work. A
// call whose context has ended is not refused for what was counted until then.
func TestTokensAreCountedInTurns(t *testing.T) {
	countTokens(nil, "") // loads the vocabulary
	var holders sync.WaitGroup
	over := make(chan struct{})
	defer holders.Wait()
	defer close(over)
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		held := make(chan struct{})
		holders.Go(func() { _ = turns.Run(t.Context(), func() { close(held); <-over }) })
		<-held
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	text := strings.Repeat("word ", 100_000)
	turn := turns.Begin(ctx)
	defer turn.End()
	<-time.After(10 * time.Millisecond) // what is free of a turn is over
	if EstimateTokens(turn, text); ctx.Err() == nil {
		t.Error("tokens were counted while others had all the places")
	}
	r, _, _ := twoDeployments(t)
	left := int64(1000)
	_, _, err := r.Chat(ctx, "chat", ChatRequest{Messages: []Message{{Role: RoleUser, Content: text}}, MaxOutputTokens: 50, TokensLeft: &left})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call whose context has ended came to %v", err)
	}
}
