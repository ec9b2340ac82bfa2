package documents

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"golang.org/x/text/unicode/norm"
)

// A search by words returns the chunks with all the words of a query, and after them chunks with
// some of the words. Ranking reads every chunk that it ranks, and most words of a sentence are in
// a large part of all chunks. So only chunks with the rarest words are ranked: as many of these
// words as mostRanked chunks hold together. The other words would add little to a rank, because
// rare words weigh more.

const (
	// maxQueryWords bounds the words of a search.
	maxQueryWords = 32
	// mostRanked is how many chunks one search ranks at most.
	mostRanked = 8192
	// rankScale turns a rank into a whole number.
	rankScale = 1e6
)

// Match is a chunk that holds words of a query, and how well.
type Match struct {
	Chunk int64
	Score float64 // higher is better
}

// queryWord is a word of a query.
type queryWord struct {
	text   string
	chunks int // chunks that hold it, or a lower bound if it is too frequent to rank by
}

// wordIndex is the index of an engine for the words of a tenant's chunks, live or not.
type wordIndex interface {
	// words splits a query into different words. The count of a word that is in more than most
	// chunks may be any larger number.
	words(query string, most int) ([]queryWord, error)
	// whole returns up to limit of the live chunks that hold all the words.
	whole(words []queryWord, limit int) ([]int64, error)
	// ranked returns up to limit of the live chunks that hold all the words, or any of them, with
	// their ranks.
	ranked(words []queryWord, all bool, limit int) ([]Match, error)
}

// Words returns the chunks that hold all the words of a query, best first. If these are fewer
// than limit, chunks with some of the rarer words follow. There may be more than limit.
func (s *Store) Words(ctx context.Context, tenant int64, query string, limit int) (matches []Match, err error) {
	err = s.Search(ctx, func(c driver.Conn) error {
		index, err := readWordIndex(c, tenant)
		if err == nil {
			matches, err = matching(index, query, limit, mostRanked)
		}
		return err
	})
	return matches, err
}

// wordIndex finds out whether other tenants have documents. If none has, the word that stands for
// the tenant selects nothing and would cost most, so it is left out.
func readWordIndex(c driver.Conn, tenant int64) (wordIndex, error) {
	others, err := c.Prep("SELECT 1 FROM document_indexes WHERE tenant <> ? LIMIT 1").Int(tenant).One(func(driver.Row) {})
	if _, is := c.Driver.(*postgres.Conn); is {
		return postgresWords{c, tenant, others}, err
	}
	return sqliteWords{c, tenant, others}, err
}

func matching(index wordIndex, query string, limit, most int) ([]Match, error) {
	words, err := index.words(query, most)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(words, func(a, b queryWord) int { return cmp.Compare(a.chunks, b.chunks) })
	held := words
	for len(held) > 0 && held[0].chunks == 0 {
		held = held[1:]
	}
	if len(held) == 0 {
		return nil, nil
	}
	var whole []int64
	if len(held) > 1 && len(held) == len(words) {
		if whole, err = index.whole(held, most); err != nil {
			return nil, err
		}
	}
	all := len(whole) >= limit // no others are needed
	ranked := telling(held, most)
	if all && ranked[0].chunks > most {
		ranked = held
	}
	best, err := index.ranked(ranked, all, most)
	// A rare word may be in no chunk, for statistics do not tell: the next rarest ones decide then.
	for err == nil && len(best) == 0 && len(whole) == 0 && len(ranked) < len(held) {
		held = held[len(ranked):]
		ranked = telling(held, most)
		best, err = index.ranked(ranked, false, most)
	}
	return inOrder(best, whole), err
}

// telling returns the rarest of the words: as many as most chunks hold together, and at least
// one.
func telling(words []queryWord, most int) []queryWord {
	chunks := words[0].chunks
	for i, w := range words[1:] {
		if chunks += w.chunks; chunks > most {
			return words[:i+1]
		}
	}
	return words
}

// inOrder returns matches by rank, but first the chunks that hold all the words.
func inOrder(matches []Match, whole []int64) []Match {
	before := make(map[int64]int, len(whole))
	for _, chunk := range whole {
		before[chunk] = 1
	}
	ranked := make(map[int64]bool, len(matches))
	for _, m := range matches {
		ranked[m.Chunk] = true
	}
	for _, chunk := range whole {
		if !ranked[chunk] { // there were more chunks than are ranked
			matches = append(matches, Match{Chunk: chunk})
		}
	}
	slices.SortFunc(matches, func(a, b Match) int {
		return cmp.Or(cmp.Compare(before[b.Chunk], before[a.Chunk]), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Chunk, b.Chunk))
	})
	return matches
}

// sqliteWords searches with FTS5.
type sqliteWords struct {
	driver.Conn
	tenant int64
	others bool // have documents too
}

// words splits a query like the tokenizer of chunk_words.
func (x sqliteWords) words(query string, most int) (words []queryWord, err error) {
	seen := map[string]bool{}
	for text := range wordsOf(strings.ToLower(query)) {
		if !seen[text] {
			seen[text] = true
			words = append(words, queryWord{text: text})
		}
	}
	if len(words) > maxQueryWords { // long words are rare more often than short ones
		slices.SortStableFunc(words, func(a, b queryWord) int { return cmp.Compare(len(b.text), len(a.text)) })
		words = words[:maxQueryWords]
	}
	// Counting a frequent word takes long. It ends when the word cannot be among the rarest any
	// more.
	for before, limit := 0, max(1, most/16); ; before, limit = limit, min(4*limit, most+1) {
		room, unknown := most, false
		for i := range words {
			if words[i].chunks == before {
				if words[i].chunks, err = x.count(words[i], limit); err != nil {
					return nil, err
				}
			}
			if words[i].chunks < limit {
				room -= words[i].chunks
			} else {
				unknown = true
			}
		}
		if !unknown || room < limit || limit > most {
			return words, nil
		}
	}
}

// count returns in how many chunks a word is, up to limit.
func (x sqliteWords) count(w queryWord, limit int) (n int, err error) {
	_, err = x.Prep("SELECT count(*) FROM (SELECT 1 FROM chunk_words WHERE chunk_words MATCH ? LIMIT ? + 0)").Text(x.match([]queryWord{w}, "")).Int(int64(limit)).
		One(func(r driver.Row) { n = int(r.Int(0)) })
	return n, err
}

// match returns an FTS5 query: words joined by an operator, in the tenant's chunks.
func (x sqliteWords) match(words []queryWord, operator string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + w.text + `"`
	}
	match := "text : (" + strings.Join(quoted, operator) + ")"
	if x.others {
		match += " AND tenant : t" + strconv.FormatInt(x.tenant, 10)
	}
	return match
}

// sqlLiveRow checks that a chunk is live, so that a dropped one takes no live one's rank. That
// costs little beside ranking.
const sqlLiveRow = " AND ?3 = (SELECT r.tenant FROM chunks c CROSS JOIN document_revisions r ON r.no = c.revision WHERE c.no = chunk_words.rowid AND r.live IS NOT NULL)"

func (x sqliteWords) whole(words []queryWord, limit int) (chunks []int64, err error) {
	err = x.Prep("SELECT rowid FROM chunk_words WHERE chunk_words MATCH ?1" + sqlLiveRow + " LIMIT ?2 + 0").Text(x.match(words, " AND ")).Int(int64(limit)).Int(x.tenant).
		Each(func(r driver.Row) error { chunks = append(chunks, r.Int(0)); return nil })
	return chunks, err
}

// ranked ranks by the tenant's own chunks alone. FTS5's bm25() weighs a word by the rows of all
// tenants, so its scores would reveal other tenants' words. Chunks are first ordered by which
// words they hold. The best are then ordered by how often they hold them and by their length.
func (x sqliteWords) ranked(words []queryWord, all bool, limit int) (matches []Match, err error) {
	scores := map[int64]float64{}
	lists, operator := make([][]queryWord, len(words)), " OR "
	for i := range words {
		lists[i] = words[i : i+1]
	}
	if all {
		lists, operator = [][]queryWord{words}, " AND "
	}
	for _, list := range lists {
		weight := 0.0
		for _, w := range list {
			weight += w.weight()
		}
		err := x.Prep("SELECT rowid FROM chunk_words WHERE chunk_words MATCH ?1" + sqlLiveRow + " LIMIT ?2 + 0").Text(x.match(list, operator)).Int(int64(limit)).Int(x.tenant).
			Each(func(r driver.Row) error { scores[r.Int(0)] += weight; return nil })
		if err != nil {
			return nil, err
		}
	}
	for chunk, score := range scores {
		matches = append(matches, Match{chunk, score})
	}
	slices.SortFunc(matches, func(a, b Match) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Chunk, b.Chunk)) })
	matches = matches[:min(len(matches), limit)]
	return matches, x.weigh(words, matches[:min(len(matches), mostWeighed)])
}

// weight is a word's inverse document frequency, for a constant number of chunks. Only the
// differences between words matter, and the tenant's number of chunks is not known here.
func (w queryWord) weight() float64 { return math.Log(1 + 16*mostRanked/float64(max(1, w.chunks))) }

// mostWeighed is how many matches are read to count their words.
const mostWeighed = 200

// The parameters of BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009,
// section 3.4).
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// weigh replaces the scores of matches by BM25 over their texts, whose mean length it uses.
func (x sqliteWords) weigh(words []queryWord, matches []Match) error {
	counts, lengths, sum := make([][]int, len(matches)), make([]float64, len(matches)), 0.0
	for i, m := range matches {
		_, err := x.Prep("SELECT text FROM chunks WHERE no = ?").Int(m.Chunk).One(func(r driver.Row) {
			counts[i], lengths[i] = occurrences(r.Text(0), words)
		})
		if err != nil {
			return err
		}
		sum += lengths[i]
	}
	mean := sum / float64(max(1, len(matches)))
	for i := range matches {
		score := 0.0
		for w, count := range counts[i] {
			frequency := float64(count)
			score += words[w].weight() * frequency * (bm25K1 + 1) / (frequency + bm25K1*(1-bm25B+bm25B*lengths[i]/max(1, mean)))
		}
		matches[i].Score = score
	}
	return nil
}

// occurrences counts each of the words in a text, and all its words.
func occurrences(text string, words []queryWord) (counts []int, length float64) {
	at := make(map[string]int, len(words))
	for i, w := range words {
		at[folded(w.text)] = i
	}
	counts = make([]int, len(words))
	for word := range wordsOf(folded(text)) {
		length++
		if i, ok := at[word]; ok {
			counts[i]++
		}
	}
	return counts, length
}

// folded returns text in lower case without diacritics, as the tokenizer of chunk_words stores
// it.
func folded(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return strings.ToLower(text)
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(strings.ToLower(text)))
}

// wordsOf splits a text like the tokenizer of chunk_words.
func wordsOf(text string) iter.Seq[string] {
	return strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) })
}

func matchOf(r driver.Row) Match { return Match{r.Int(0), float64(r.Int(1)) / rankScale} }
