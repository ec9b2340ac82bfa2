package documents

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/vector"
)

func TestFuse(t *testing.T) {
	cosine, keyword := 0.9, 3.5
	nearest := []found{{chunk: 1, score: cosine, cosine: &cosine}, {chunk: 2, score: 0.8}}
	matching := []found{{chunk: 2, score: keyword, keyword: &keyword}, {chunk: 3, score: 1}}
	got := fuse(nearest, matching)
	want := []struct {
		chunk int64
		score float64
	}{{2, 1.0/62 + 1.0/61}, {1, 1.0 / 61}, {3, 1.0 / 62}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if got[i].chunk != w.chunk || math.Abs(got[i].score-w.score) > 1e-12 {
			t.Errorf("%d: %+v, want %+v", i, got[i], w)
		}
	}
	if got[0].keyword != &keyword || got[1].cosine != &cosine || got[2].cosine != nil {
		t.Errorf("%+v", got)
	}
}

func TestOrderPassesOverOtherDimensions(t *testing.T) {
	unit := []float32{1, 0}
	got := order(unit, map[int64][]byte{1: vector.Bytes([]float32{0, 1}), 2: vector.Bytes([]float32{1, 0}), 3: vector.Bytes([]float32{1, 0, 0}), 4: vector.Bytes([]float32{1, 0})})
	if len(got) != 3 || got[0].chunk != 2 || got[1].chunk != 4 || *got[0].cosine != 1 {
		t.Errorf("%+v", got)
	}
}

func TestVectorsOf(t *testing.T) {
	chunks := []ChunkText{{No: 7}, {No: 8}}
	vectors, dimensions, err := vectorsOf(json.RawMessage(`{"embeddings":[[3,4],[0,2]]}`), chunks)
	if err != nil || dimensions != 2 || vectors[1].Chunk != 8 || !slices.Equal(vector.FromBytes(vectors[0].Vector), []float32{0.6, 0.8}) {
		t.Errorf("%+v, %d, %v", vectors, dimensions, err)
	}
	for _, bad := range []string{`{}`, `null`, `[`, `{"embeddings":[[1,2]]}`, `{"embeddings":[[1,2],[1]]}`, `{"embeddings":[[1,2],[0,0]]}`, `{"embeddings":[[],[]]}`} {
		var failed *forebay.TaskError
		if _, _, err := vectorsOf(json.RawMessage(bad), chunks); !errors.As(err, &failed) || failed.Class != forebay.ClassTransient || failed.Code != model.CodeMalformedResponse {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestDescribed(t *testing.T) {
	answer := `{"title":" A\n title ","language":"DE_at","entities":[{"type":"person","text":"Ada"},{"type":"person","text":" Ada "},{"type":"x","text":""},
		{"type":"location","text":"` + strings.Repeat("ä", 300) + `\u0000"}]}`
	d := described(json.RawMessage(answer), Revision{})
	var entities []forebay.DocumentEntity
	if err := json.Unmarshal(d.Entities, &entities); err != nil {
		t.Fatal(err)
	}
	if d.Title != "A title" || d.Language != "de-AT" || len(entities) != 2 || entities[0].Text != "Ada" || entities[1].Text != strings.Repeat("ä", maxEntityBytes/2) {
		t.Errorf("%+v, %+v", d, entities)
	}
	if d = described(json.RawMessage(answer), Revision{Title: "Its own", Language: "fr"}); d.Title != "" || d.Language != "" {
		t.Errorf("what the document says itself is replaced: %+v", d)
	}
	if d = described(json.RawMessage(`nonsense`), Revision{}); string(d.Entities) != "[]" {
		t.Errorf("%+v", d)
	}
}

func TestFailuresAreSorted(t *testing.T) {
	for code, want := range map[forebay.Code]forebay.ErrorClass{
		forebay.CodeDocumentBroken: forebay.ClassPermanent, forebay.CodeDimensionsChanged: forebay.ClassPermanent,
		forebay.CodeUnavailable: forebay.ClassTransient, forebay.CodeConflict: forebay.ClassTransient,
	} {
		var sorted *forebay.TaskError
		if err := failure(forebay.Errorf(code, "x")); !errors.As(err, &sorted) || sorted.Class != want || sorted.Code != string(code) {
			t.Errorf("%s: %v", code, err)
		}
	}
	if plain := errors.New("x"); failure(plain) != plain {
		t.Error("another error was changed")
	}
}

// The indexes in memory stay within their limit: the one that was not used for longest is
// discarded.
func TestIndexesAreBounded(t *testing.T) {
	stopped := 0
	x := indexes{limit: 100, watch: func(int64) (<-chan struct{}, func()) { return nil, func() { stopped++ } }, byTenant: map[int64]*tenantIndex{}}
	for tenant := range int64(5) {
		x.of(tenant + 1).bytes = 40
	}
	x.of(4)
	if _, there := x.byTenant[1]; there || len(x.byTenant) > 3 || x.byTenant[5] == nil {
		t.Errorf("%d are kept", len(x.byTenant))
	}
	if stopped != 5-len(x.byTenant) {
		t.Errorf("%d are watched no more", stopped)
	}
}

func TestDocumentIDIsOfItsContent(t *testing.T) {
	id := documentID(make([]byte, 32))
	if id != "doc_00000000000000000000000000" || !forebay.ValidDocumentID(id) {
		t.Errorf("%q", id)
	}
	for s, want := range map[string]bool{"a": true, "file:a.txt-1": true, "": false, ".a": false, "a/b": false, "ä": false, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false} {
		if forebay.ValidDocumentID(s) != want {
			t.Errorf("%q", s)
		}
	}
}
