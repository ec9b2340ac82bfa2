package documents

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type searchData struct {
	Query, Mode, Limit string
	Embeds             bool // the caller may have queries embedded
	Results            *forebay.SearchResults
	Problem            string
	Foreign            bool // another site has made the address: nothing was searched
}

// search answers GET /search. Searching reads only. But a search by meaning embeds its query,
// which costs a call of a model: a link on another site starts none.
func search(r *kit.Request) error {
	data := searchData{Query: r.Query("query"), Mode: r.Query("mode"), Limit: r.Query("limit"), Embeds: r.May(string(forebay.ScopeSubmit))}
	if data.Mode == "" {
		data.Mode = string(forebay.SearchHybrid)
		if !data.Embeds {
			data.Mode = string(forebay.SearchKeyword)
		}
	}
	status := 0
	if strings.TrimSpace(data.Query) != "" {
		if site := r.Header.Get("Sec-Fetch-Site"); data.Mode != string(forebay.SearchKeyword) && (site == "cross-site" || site == "same-site") {
			data.Foreign = true
		} else if err := data.find(r); err != nil {
			e, ok := errors.AsType[*forebay.Error](err)
			if !ok {
				return err
			}
			data.Problem, status = e.Error(), http.StatusUnprocessableEntity
			if e.Code == forebay.CodeForbidden {
				status = http.StatusForbidden
			}
		}
	}
	return pages.Render(r, "search", kit.Page{Title: "Search", Section: "/search", Data: data, Status: status, Still: true, Commands: []string{command(data)}})
}

// find searches for what the address says.
func (d *searchData) find(r *kit.Request) error {
	req := forebay.SearchRequest{Query: d.Query, Mode: forebay.SearchMode(d.Mode)}
	if d.Limit != "" {
		n, err := strconv.Atoi(d.Limit)
		if err != nil || n < 1 {
			return forebay.Invalid("limit", "goes from 1 to %d", forebay.MaxSearchResults)
		}
		req.Limit = n
	}
	if !d.Embeds && req.Mode != forebay.SearchKeyword {
		return forebay.Errorf(forebay.CodeForbidden, "a search by meaning embeds the query, which needs the scope %q; search by words", forebay.ScopeSubmit)
	}
	results, err := r.Client.Search(r.Context(), req)
	if err == nil {
		d.Results = &results
	}
	return err
}

func command(d searchData) string {
	query := d.Query
	if query == "" {
		query = "QUERY"
	}
	line := "forebay search --mode " + kit.Shell(d.Mode)
	if d.Limit != "" {
		line += " --limit " + kit.Shell(d.Limit)
	}
	return line + " " + kit.Args(query)
}

// Modes are the ways to rank.
func (searchData) Modes() []forebay.SearchMode {
	return []forebay.SearchMode{forebay.SearchHybrid, forebay.SearchVector, forebay.SearchKeyword}
}

// Rank shows a rank; without one, that the passage was not found this way.
func (searchData) Rank(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v, 'f', 4, 64)
}

// Score shows the score that the order goes by.
func (searchData) Score(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

// Headings are those that a passage stands under.
func (searchData) Headings(p forebay.ChunkPosition) string { return strings.Join(p.Headings, " › ") }

// Place is the place of a passage, from 1.
func (searchData) Place(index int) int { return index + 1 }
