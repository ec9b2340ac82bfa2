package store

import (
	"maps"
	"strconv"
	"strings"
)

// notification is what the processes that share a database tell each other after a commit: words. It only
// saves waiting. Whoever misses it finds out by looking, a little later.
type notification struct {
	words map[word]int64
	count map[wordKind]int
	many  map[wordKind]bool // of these there were too many to be kept
	lost  bool              // some words were: anything may have happened
}

// wordKind says what a word is about. It is a letter, which stands for the kind in the payload too.
type wordKind byte

// wordSettings says that settings have changed: everybody looks again at everything.
const wordSettings wordKind = 'q'

// wordChanged names something that changed and that others may watch.
const wordChanged wordKind = 'c'

// word is a kind and up to two numbers. What several words of one kind and numbers say of a time is the
// earliest of them.
type word struct {
	kind wordKind
	a, b int64
}

// detailWords are of kinds that give details of others, which are told before those.
const detailWords = "l"

// keptWords are told again where telling them failed; the rest is found by looking.
var keptWords = []wordKind{'x'}

// localWords are for the writers of this process only.
const localWords = "de"

// Bounds of what is told at once. Of a kind of which there are more nothing is told but that.
const (
	maxWordsOfKind  = 2000
	maxPayloadBytes = 7900 // a notification's payload has less than 8,000 bytes
)

func (n *notification) empty() bool { return len(n.words) == 0 && len(n.many) == 0 && !n.lost }

// add adds a word, with the time that it tells, or 0.
func (n *notification) add(kind wordKind, a, b, at int64) {
	w := word{kind, a, b}
	known, ok := n.words[w]
	switch {
	case ok:
		if at < known {
			n.words[w] = at
		}
		return
	case n.many[kind]:
		return
	case n.words == nil:
		n.words, n.count = map[word]int64{}, map[wordKind]int{}
	case n.count[kind] >= maxWordsOfKind:
		n.addMany(kind)
		return
	}
	n.count[kind]++
	n.words[w] = at
}

// addMany notes that there are too many words of a kind.
func (n *notification) addMany(kind wordKind) {
	if n.many == nil {
		n.many = map[wordKind]bool{}
	}
	n.many[kind] = true
	maps.DeleteFunc(n.words, func(w word, _ int64) bool { return w.kind == kind })
	delete(n.count, kind)
}

func (n *notification) addAll(other *notification) {
	for w, at := range other.words {
		n.add(w.kind, w.a, w.b, at)
	}
	for kind := range other.many {
		n.addMany(kind)
	}
	n.lost = n.lost || other.lost
}

// has reports whether something of the kind was told.
func (n *notification) has(kind wordKind) bool { return n.count[kind] > 0 || n.many[kind] }

// each calls f for the words of a kind.
func (n *notification) each(kind wordKind, f func(a, b, at int64)) {
	if n.count[kind] == 0 {
		return
	}
	for w, at := range n.words {
		if w.kind == kind {
			f(w.a, w.b, at)
		}
	}
}

// only leaves the words of those kinds, and that some were lost.
func (n *notification) only(kinds ...wordKind) *notification {
	left := &notification{lost: n.lost}
	for _, kind := range kinds {
		if n.many[kind] {
			left.addMany(kind)
		}
		n.each(kind, func(a, b, at int64) { left.add(kind, a, b, at) })
	}
	return left
}

// encode writes the words in as many payloads as needed. Those that give details of others come first:
// whoever looks when it has heard of a subqueue knows them, though these are several payloads.
func (n *notification) encode() (payloads []string) {
	var b strings.Builder
	write := func(w word, at int64) {
		if strings.IndexByte(localWords, byte(w.kind)) >= 0 {
			return
		}
		if b.Len() > maxPayloadBytes-64 {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		b.WriteByte(byte(w.kind))
		for _, v := range []int64{w.a, w.b, at} {
			b.WriteString(strconv.FormatInt(v, 36))
			b.WriteByte(':')
		}
		b.WriteByte(' ')
	}
	if n.lost {
		b.WriteString("* ")
	}
	for kind := range n.many {
		write(word{kind: '+', a: int64(kind)}, 0)
	}
	for _, first := range []bool{true, false} {
		for w, at := range n.words {
			if (strings.IndexByte(detailWords, byte(w.kind)) >= 0) == first {
				write(w, at)
			}
		}
	}
	if b.Len() == 0 {
		return payloads
	}
	return append(payloads, b.String())
}

// decodeNotification reads a payload. What it does not understand it takes for words that were lost.
func decodeNotification(payload string) *notification {
	n := &notification{}
	for text := range strings.FieldsSeq(payload) {
		var numbers [3]int64
		parts := strings.Split(text[1:], ":")
		ok := len(parts) == len(numbers)+1
		for i := 0; ok && i < len(numbers); i++ {
			var err error
			numbers[i], err = strconv.ParseInt(parts[i], 36, 64)
			ok = err == nil
		}
		if !ok {
			n.lost = true
			continue
		}
		if text[0] == '+' {
			n.addMany(wordKind(numbers[0]))
			continue
		}
		n.add(wordKind(text[0]), numbers[0], numbers[1], numbers[2])
	}
	return n
}
