package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// eachOf runs a statement for each of these numbers: on SQLite one after the other, on PostgreSQL at once.
func (c conn) eachOf(sqlite, postgres string, numbers []int64, tenant int64, f func(row) error) error {
	if _, is := c.driver.(*postgresConn); is {
		return c.prep(postgres).text(arrayOf(numbers)).int(tenant).each(f)
	}
	for _, n := range numbers {
		if err := c.prep(sqlite).int(n).int(tenant).each(f); err != nil {
			return err
		}
	}
	return nil
}

const (
	ofLive      = " JOIN chunks c ON c.no = x.no JOIN document_revisions r ON r.no = c.revision WHERE r.tenant = ?2 AND r.live IS NOT NULL"
	fromOne     = " FROM (SELECT ?1 AS no) x"
	fromNumbers = " FROM unnest(CAST(?1 AS bigint[])) AS x(no)"
)

// Vectors returns the vectors of those of the chunks that searches of the tenant find.
func (s *Store) Vectors(ctx context.Context, tenant int64, chunks []int64) (vectors map[int64][]byte, err error) {
	vectors = make(map[int64][]byte, len(chunks))
	const columns, rest = "SELECT v.chunk, v.vector", " JOIN chunk_vectors v ON v.chunk = x.no" + ofLive
	err = s.search(ctx, func(c conn) error {
		return c.eachOf(columns+fromOne+rest, columns+fromNumbers+rest, chunks, tenant, func(r row) error { vectors[r.int(0)] = r.blob(1); return nil })
	})
	return vectors, err
}

// Passage is a chunk as a search shows it.
type Passage struct {
	Chunk    NewChunk
	Document string
	Revision Revision // its ID, Title, Name and Metadata
}

// Passages returns those of the chunks that searches of the tenant find.
func (s *Store) Passages(ctx context.Context, tenant int64, chunks []int64) (passages map[int64]Passage, err error) {
	passages = make(map[int64]Passage, len(chunks))
	const columns = `SELECT c.no, c.number, c.start_byte, c.end_byte, c.start_char, c.end_char, c.page, c.tokens, c.headings, c.text,
		r.id, r.title, r.name, r.metadata, (SELECT d.id FROM documents d WHERE d.no = r.document)`
	err = s.search(ctx, func(c conn) error {
		return c.eachOf(columns+fromOne+ofLive, columns+fromNumbers+ofLive, chunks, tenant, func(r row) error {
			passages[r.int(0)] = Passage{
				Chunk: NewChunk{Number: int(r.int(1)), StartByte: int(r.int(2)), EndByte: int(r.int(3)), StartChar: int(r.int(4)), EndChar: int(r.int(5)),
					Page: int(r.int(6)), Tokens: int(r.int(7)), Headings: r.blob(8), Text: r.text(9)},
				Revision: Revision{ID: r.text(10), Title: r.text(11), Name: r.text(12), Metadata: r.blob(13)}, Document: r.text(14),
			}
			return nil
		})
	})
	return passages, err
}

// LiveCode is the code of a chunk of a revision that went live under that number.
type LiveCode struct {
	Live  int64
	Chunk int64
	Code  []byte
}

// codesPage is how many codes are read at once. It is more than a revision has chunks.
const codesPage = 20_000

// Codes returns codes of what went live after that number, whole revisions in order. There may be more as
// long as there are any.
func (s *Store) Codes(ctx context.Context, tenant, after int64) (codes []LiveCode, err error) {
	err = s.search(ctx, func(c conn) error {
		codes = codes[:0]
		err := c.prep(`SELECT r.live, c.chunk, c.code FROM document_revisions r CROSS JOIN chunk_codes c ON c.revision = r.no
			WHERE r.tenant = ? AND r.live > ? ORDER BY r.live LIMIT ? + 0`).int(tenant).int(after).int(codesPage).
			each(func(r row) error { codes = append(codes, LiveCode{r.int(0), r.int(1), r.blob(2)}); return nil })
		if n := len(codes); n == codesPage { // the last one may not be whole
			last := codes[n-1].Live
			for n > 0 && codes[n-1].Live == last {
				n--
			}
			codes = codes[:n]
		}
		return err
	})
	return codes, err
}

// Dimensions returns those of a tenant's vectors; 0: it has none.
func (s *Store) Dimensions(ctx context.Context, tenant int64) (dimensions int, err error) {
	err = s.read(ctx, func(c conn) error {
		_, err := c.prep("SELECT dimensions FROM document_indexes WHERE tenant = ?").int(tenant).one(func(r row) { dimensions = int(r.int(0)) })
		return err
	})
	return dimensions, err
}

// Match is a chunk that holds the words, and how well.
type Match struct {
	Chunk int64
	Score float64 // higher is better
}

// maxQueryWords bounds what a search by words looks for.
const maxQueryWords = 32

// rankScale makes a whole number of a rank.
const rankScale = 1e6

// maxSomeWords is how many words are looked for of which a chunk need not hold all: ranking reads every chunk
// with one of them, so they are the longest, which are seldom the most frequent.
const maxSomeWords = 6

// Words returns the chunks that hold all the words of a query, best first, and if these are fewer than limit
// those that hold some of its longest words after.
func (s *Store) Words(ctx context.Context, tenant int64, query string, limit int) (matches []Match, err error) {
	words := strings.Fields(query)
	words = words[:min(len(words), maxQueryWords)]
	err = s.search(ctx, func(c conn) error {
		if matches, err = c.words(tenant, words, false, limit); err != nil || len(matches) >= limit || len(words) == 1 {
			return err
		}
		slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		words := words[:min(len(words), maxSomeWords)]
		all := map[int64]bool{}
		for _, m := range matches {
			all[m.Chunk] = true
		}
		some, err := c.words(tenant, words, true, limit)
		for _, m := range some {
			if !all[m.Chunk] && len(matches) < limit {
				matches = append(matches, m)
			}
		}
		return err
	})
	return matches, err
}

const sqlWordsSQLite = `
SELECT w.no, CAST(-w.score * 1000000 AS INTEGER) FROM (
  SELECT rowid AS no, bm25(chunk_words, 0.0, 1.0) AS score FROM chunk_words WHERE chunk_words MATCH ?1 ORDER BY score LIMIT ?2 + 0) w
JOIN chunks c ON c.no = w.no JOIN document_revisions r ON r.no = c.revision WHERE r.live IS NOT NULL AND r.tenant = ?3 ORDER BY w.score LIMIT ?4 + 0`

// words looks for chunks that hold all the words, or any.
func (c conn) words(tenant int64, words []string, some bool, limit int) (matches []Match, err error) {
	collect := func(r row) error {
		matches = append(matches, Match{r.int(0), float64(r.int(1)) / rankScale})
		return nil
	}
	if _, is := c.driver.(*postgresConn); is {
		return matches, c.prep(sqlWordsPostgres(some)).text(strings.Join(words, " ")).text("'#" + strconv.FormatInt(tenant, 10) + "'").int(tenant).int(int64(limit)).each(collect)
	}
	match := matchOf(tenant, words, some)
	if match == "" {
		return nil, nil
	}
	for look := 4*limit + 100; ; look *= 8 { // among the best there may be some of contents that are not live
		matches = matches[:0]
		if err := c.prep(sqlWordsSQLite).text(match).int(int64(look)).int(tenant).int(int64(limit)).each(collect); err != nil {
			return nil, err
		}
		if len(matches) >= limit || look > 1<<20 {
			return matches, nil
		}
	}
}

// matchOf writes what FTS5 matches: the words as the tokenizer of chunk_words sees them; "" if there are none.
func matchOf(tenant int64, words []string, some bool) string {
	var quoted []string
	for _, word := range words {
		for _, w := range strings.FieldsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) }) {
			quoted = append(quoted, `"`+w+`"`)
		}
	}
	if len(quoted) == 0 {
		return ""
	}
	operator := " AND "
	if some {
		operator = " OR "
	}
	return "tenant : t" + strconv.FormatInt(tenant, 10) + " AND text : (" + strings.Join(quoted, operator) + ")"
}
