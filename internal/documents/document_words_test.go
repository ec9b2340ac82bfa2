package documents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/raced"
)

// lexicon makes texts of words as languages have them: a few that most texts have, some that many
// have, and very many rare ones.
type lexicon struct{ *rand.Rand }

func (l lexicon) some(kind string, of, n int) (words []string) {
	for range n {
		words = append(words, fmt.Sprintf("%s%d", kind, l.IntN(of)))
	}
	return words
}

func (l lexicon) text() []string {
	return slices.Concat(l.some("stop", 8, 10), l.some("usual", 40, 6), l.some("uncommon", 1500, 6))
}

// wordsTenant has texts to be searched for, and beside it stands another tenant with the same
// words.
func wordsTenant(t *testing.T, s *stores) (tenant int64, texts [][]string, chunks []int64) {
	t.Helper()
	l := lexicon{rand.New(rand.NewPCG(5, 5))}
	tenant = tenantOf(t, s, "one")
	other := tenantOf(t, s, "two")
	for n := range 6 {
		var said []string
		for range 100 {
			text := l.text()
			texts, said = append(texts, text), append(said, strings.Join(text, " "))
		}
		vectors := randomVectors(l.Rand, len(said), 8)
		chunks = append(chunks, liveTexts(t, s, tenant, fmt.Sprintf("d%d", n), said, vectors)...)
		liveTexts(t, s, other, fmt.Sprintf("o%d", n), said, vectors)
	}
	return tenant, texts, chunks
}

// A search that ranks few chunks finds the text that the words are from, however frequent most of
// them are.
func TestWordsFindWhatTheyAreFrom(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, texts, chunks := wordsTenant(t, s)
		find := func(query string, most int) []Match {
			t.Helper()
			var found []Match
			err := s.DB.Search(t.Context(), func(c driver.Conn) (err error) {
				index, err := readWordIndex(c, tenant)
				if err == nil {
					found, err = matching(index, query, 10, most)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range found {
				if !slices.Contains(chunks, m.Chunk) {
					t.Fatalf("%q: chunk %d is another tenant's", query, m.Chunk)
				}
			}
			return found
		}
		for _, analysed := range []bool{false, true} {
			if analysed && s.DB.Searchers != nil {
				if err := s.DB.Search(t.Context(), func(c driver.Conn) error { return c.Prep("ANALYZE chunks").Exec() }); err != nil {
					t.Fatal(err)
				}
			}
			const most = 60
			l := lexicon{rand.New(rand.NewPCG(6, 6))}
			lost := 0
			for range 60 {
				n := l.IntN(len(texts))
				text := texts[n]
				query := slices.Concat(text[:5], text[10:12], text[16:18], []string{"absent"})
				l.Shuffle(len(query), func(i, j int) { query[i], query[j] = query[j], query[i] })
				found := find(strings.Join(query, " "), most)
				if !slices.ContainsFunc(found[:min(10, len(found))], func(m Match) bool { return m.Chunk == chunks[n] }) {
					lost++
				}
			}
			if lost > 3 && (analysed || s.DB.Searchers == nil) { // PostgreSQL knows the frequent words by then
				t.Errorf("%d of 60 texts are not found by their words", lost)
			}
			// Chunks that hold all the words come first, also when these are frequent.
			for _, query := range []string{"stop1 stop2", "STOP1, stop2 usual3", "uncommon7 stop3", "usual1"} {
				found := find(query, most)
				words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool { return r == ' ' || r == ',' })
				holds := func(m Match) bool {
					text := texts[slices.Index(chunks, m.Chunk)]
					return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(text, w) })
				}
				all := 0
				for _, text := range texts {
					if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(text, w) }) {
						all++
					}
				}
				for i, m := range found[:min(10, len(found))] {
					if holds(m) != (i < all) {
						t.Errorf("%q, of which there are %d: result %d holds all of them: %t", query, all, i, holds(m))
					}
				}
				if len(found) < min(10, all) {
					t.Errorf("%q: %d of %d", query, len(found), all)
				}
			}
		}
		if found := find("absent", 60); len(found) != 0 {
			t.Errorf("%v", found)
		}
		if found := find(" .,!' \" ( ", 60); len(found) != 0 {
			t.Errorf("of no words: %v", found)
		}
	})
}

// Chunks that are not live take no rank from live ones, even if far more of them hold the words.
// They may belong to documents being processed or deleted.
func TestWordsPassOverWhatIsNotLive(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		draw := rand.New(rand.NewPCG(7, 7))
		tenant := tenantOf(t, s, "one")
		said := make([]string, 50)
		for i := range said {
			said[i] = "a heron waits"
		}
		liveTexts(t, s, tenant, "deleted", said, randomVectors(draw, len(said), 8))
		splitTexts(t, s, tenant, "coming", said)
		splitTexts(t, s, tenant, "gone", said)
		splitTexts(t, s, tenantOf(t, s, "two"), "theirs", said) // who has no vectors yet
		for _, id := range []string{"deleted", "gone"} {
			if _, err := s.Documents.DeleteDocument(t.Context(), tenant, id, audit.Act{}); err != nil {
				t.Fatal(err)
			}
		}
		live := liveTexts(t, s, tenant, "live", []string{"the heron waits here", "no bird", "where the heron waits", "a heron"}, randomVectors(draw, 4, 8))
		for query, want := range map[string][]int64{"heron": {live[0], live[2], live[3]}, "heron waits": {live[0], live[2], live[3]}, "absent heron": {live[0], live[2], live[3]}, "bird": {live[1]}} {
			var found []int64
			err := s.DB.Search(t.Context(), func(c driver.Conn) error {
				index, err := readWordIndex(c, tenant)
				if err != nil {
					return err
				}
				matches, err := matching(index, query, 10, 8)
				for _, m := range matches {
					found = append(found, m.Chunk)
				}
				return err
			})
			slices.Sort(found)
			if err != nil || !slices.Equal(found, want) {
				t.Errorf("%q: %v, want %v, %v", query, found, want, err)
			}
		}
	})
}

// A word that no chunk holds hides none of a frequent one. With statistics PostgreSQL knows only
// that the first is not frequent.
func TestWordThatNoChunkHoldsHidesNoOther(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "one")
		said := make([]string, 50)
		for i := range said {
			said[i] = "a heron waits"
		}
		liveTexts(t, s, tenant, "live", said, randomVectors(rand.New(rand.NewPCG(7, 7)), len(said), 8))
		if s.DB.Searchers != nil {
			if err := s.DB.Search(t.Context(), func(c driver.Conn) error { return c.Prep("ANALYZE chunks").Exec() }); err != nil {
				t.Fatal(err)
			}
		}
		for query, want := range map[string]int{"heron": 8, "absent heron": 8, "heron absent missing": 8, "absent": 0} {
			var found []Match
			err := s.DB.Search(t.Context(), func(c driver.Conn) error {
				index, err := readWordIndex(c, tenant)
				if err == nil {
					found, err = matching(index, query, 10, 8)
				}
				return err
			})
			if err != nil || len(found) != want {
				t.Errorf("%q: %v, want %d, %v", query, found, want, err)
			}
		}
	})
}

// Of a query with more words than are looked for, the rare one is among those, wherever it stands.
func TestRareWordOfALongQuery(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "one")
		var usual []string
		for i := range maxQueryWords + 8 {
			usual = append(usual, fmt.Sprintf("a%d", i))
		}
		query := strings.Join(append(usual, "zebra"), " ")
		said := append(slices.Repeat([]string{strings.Join(usual, " ")}, 30), query)
		chunks := liveTexts(t, s, tenant, "live", said, randomVectors(rand.New(rand.NewPCG(9, 9)), len(said), 8))
		for range 2 { // PostgreSQL without statistics, and with them
			found, err := s.Documents.Words(t.Context(), tenant, query, 10)
			if err != nil || len(found) == 0 || found[0].Chunk != chunks[len(chunks)-1] {
				t.Errorf("%v, %v", found, err)
			}
			if s.DB.Searchers != nil {
				if err := s.DB.Search(t.Context(), func(c driver.Conn) error { return c.Prep("ANALYZE chunks").Exec() }); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// What other tenants store changes neither what a search by words finds nor its scores.
func TestScoresOfWordsTellNothingOfOtherTenants(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		draw := rand.New(rand.NewPCG(8, 8))
		tenant, other := tenantOf(t, s, "one"), tenantOf(t, s, "two")
		said := []string{"the merger with Zenith", "the merger, the merger and a heron", "a heron waits for the merger with a much longer text around it", "Zénith"}
		liveTexts(t, s, tenant, "ours", said, randomVectors(draw, len(said), 8))
		queries := []string{"merger", "zenith", "merger zenith", "heron", "the heron", "absent merger"}
		search := func() (all [][]Match) {
			for _, q := range queries {
				found, err := s.Documents.Words(t.Context(), tenant, q, 10)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, found)
			}
			return all
		}
		before := search()
		for n, text := range []string{"merger", "zenith and a very long text that goes on about herons and whatever else there may be"} {
			theirs := slices.Repeat([]string{text}, 40)
			liveTexts(t, s, other, fmt.Sprint("theirs", n), theirs, randomVectors(draw, len(theirs), 8))
			for i, after := range search() {
				if !slices.Equal(after, before[i]) {
					t.Errorf("%q: %v, but once another tenant has stored %q: %v", queries[i], before[i], text, after)
				}
			}
		}
		if best := before[0]; len(best) != 3 || best[0].Score <= best[1].Score {
			t.Errorf("who says it twice is not the first: %v", best)
		}
		if s.DB.Searchers == nil && len(before[1]) != 2 { // accents count on PostgreSQL
			t.Errorf("zenith: %v", before[1])
		}
	})
}
