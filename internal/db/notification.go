package db

import (
	"maps"
	"strconv"
	"strings"
)

// Notification is what the processes that share a database tell each other after a commit:
// words. It only saves waiting. Whoever misses it finds out by looking, a little later.
type Notification struct {
	Words   map[Word]int64    // but for those of wordChanged
	changed []int64           // the numbers of wordChanged, which has most words and tells no times
	count   [256]uint16       // by kind
	Many    map[WordKind]bool // of these there were too many to be kept
	Lost    bool              // some words were: anything may have happened
}

// WordKind says what a word is about. It is a letter, which stands for the kind in the payload
// too.
type WordKind byte

// Reach says whom a kind of word is for, and when.
type Reach int

const (
	ToAll      Reach = iota
	ToAllFirst       // before others: it gives details of what those tell of
	ToAllAgain       // told again where telling failed; of the others, what was missed is found by looking
	ToWriters        // those of this process only
)

var reachOf [256]*Reach

// NewWordKind makes a kind as the program starts. No other may have the letter.
func NewWordKind(letter byte, reach Reach) WordKind {
	if reachOf[letter] != nil {
		panic("two kinds of words have the letter " + string(letter))
	}
	reachOf[letter] = &reach
	return WordKind(letter)
}

// reach is that of the kind; one that this version does not know is for all.
func (k WordKind) reach() Reach {
	if r := reachOf[k]; r != nil {
		return *r
	}
	return ToAll
}

var (
	// WordSettings says that settings have changed: everybody looks again at everything.
	WordSettings = NewWordKind('q', ToAll)
	// wordChanged names something that changed and that others may watch.
	wordChanged = NewWordKind('c', ToAll)
)

// Word is a kind and up to two numbers. What several words of one kind and numbers say of a
// time is the earliest of them.
type Word struct {
	Kind WordKind
	A, B int64
}

// Bounds of what is told at once. Of a kind of which there are more nothing is told but that.
const (
	maxWordsOfKind  = 2000
	maxPayloadBytes = 7900 // a notification's payload has less than 8,000 bytes
)

func (n *Notification) empty() bool {
	return len(n.Words) == 0 && len(n.changed) == 0 && len(n.Many) == 0 && !n.Lost
}

// add adds a word, with the time that it tells, or 0.
func (n *Notification) add(kind WordKind, a, b, at int64) {
	if kind == wordChanged {
		n.addChanged(a)
		return
	}
	w := Word{kind, a, b}
	known, ok := n.Words[w]
	switch {
	case ok:
		if at < known {
			n.Words[w] = at
		}
		return
	case n.Many[kind]:
		return
	case n.Words == nil:
		n.Words = map[Word]int64{}
	case n.count[kind] >= maxWordsOfKind:
		n.addMany(kind)
		return
	}
	n.count[kind]++
	n.Words[w] = at
}

// addChanged adds words of wordChanged. One that is there twice does no harm.
func (n *Notification) addChanged(numbers ...int64) {
	if n.Many[wordChanged] || len(numbers) == 0 {
		return
	}
	if len(n.changed)+len(numbers) > maxWordsOfKind {
		n.addMany(wordChanged)
		return
	}
	n.changed = append(n.changed, numbers...)
	n.count[wordChanged] = uint16(len(n.changed))
}

// addMany notes that there are too many words of a kind.
func (n *Notification) addMany(kind WordKind) {
	if n.Many == nil {
		n.Many = map[WordKind]bool{}
	}
	n.Many[kind] = true
	maps.DeleteFunc(n.Words, func(w Word, _ int64) bool { return w.Kind == kind })
	if kind == wordChanged {
		n.changed = nil
	}
	n.count[kind] = 0
}

func (n *Notification) addAll(other *Notification) {
	for w, at := range other.Words {
		n.add(w.Kind, w.A, w.B, at)
	}
	n.addChanged(other.changed...)
	for kind := range other.Many {
		n.addMany(kind)
	}
	n.Lost = n.Lost || other.Lost
}

// Has reports whether something of the kind was told.
func (n *Notification) Has(kind WordKind) bool { return n.count[kind] > 0 || n.Many[kind] }

// Each calls f for the words of a kind, which is not wordChanged.
func (n *Notification) Each(kind WordKind, f func(a, b, at int64)) {
	if n.count[kind] == 0 {
		return
	}
	for w, at := range n.Words {
		if w.Kind == kind {
			f(w.A, w.B, at)
		}
	}
}

// again leaves the words that are to be told again, and that some were lost.
func (n *Notification) again() *Notification {
	left := &Notification{Lost: n.Lost}
	for kind := range n.Many {
		if kind.reach() == ToAllAgain {
			left.addMany(kind)
		}
	}
	for w, at := range n.Words {
		if w.Kind.reach() == ToAllAgain {
			left.add(w.Kind, w.A, w.B, at)
		}
	}
	return left
}

// encode writes the words into as many payloads as needed. Words that give details of others come
// first, so that a receiver already has them when the word they belong to arrives.
func (n *Notification) encode() (payloads []string) {
	b := make([]byte, 0, min(maxPayloadBytes, 64+16*(len(n.Words)+len(n.changed))))
	write := func(w Word, at int64) {
		if w.Kind.reach() == ToWriters {
			return
		}
		if len(b) > maxPayloadBytes-64 {
			payloads = append(payloads, string(b))
			b = b[:0]
		}
		b = append(b, byte(w.Kind))
		for _, v := range [...]int64{w.A, w.B, at} {
			b = append(strconv.AppendInt(b, v, 36), ':')
		}
		b = append(b, ' ')
	}
	if n.Lost {
		b = append(b, "* "...)
	}
	for kind := range n.Many {
		write(Word{Kind: '+', A: int64(kind)}, 0)
	}
	for _, first := range []bool{true, false} {
		for w, at := range n.Words {
			if (w.Kind.reach() == ToAllFirst) == first {
				write(w, at)
			}
		}
	}
	for _, no := range n.changed {
		write(Word{Kind: wordChanged, A: no}, 0)
	}
	if len(b) == 0 {
		return payloads
	}
	return append(payloads, string(b))
}

// decodeNotification reads a payload. What it does not understand it takes for words that were
// lost.
func decodeNotification(payload string) *Notification {
	n := &Notification{}
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
			n.Lost = true
			continue
		}
		if text[0] == '+' {
			n.addMany(WordKind(numbers[0]))
			continue
		}
		n.add(WordKind(text[0]), numbers[0], numbers[1], numbers[2])
	}
	return n
}
