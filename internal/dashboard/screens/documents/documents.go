package documents

import (
	"embed"
	"net/http"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages about documents.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get("/documents", list),
		kit.Get("/documents/{document}", show),
		kit.Post("/documents/{document}/retry", retry),
		kit.Get("/documents/{document}/delete", confirmDelete),
		kit.Post("/documents/{document}/delete", remove),
		kit.Get("/search", search),
	}
}

// list answers GET /documents.
func list(r *kit.Request) error {
	found, err := kit.Fetch[forebay.Page[forebay.Document]](r, "/v1/documents", kit.Values("limit", "50", "cursor", r.Query("cursor"),
		"created_after", r.Query("created_after"), "created_before", r.Query("created_before")))
	if err != nil {
		return err
	}
	return pages.Render(r, "list", kit.Page{Title: "Documents", Section: "/documents", Data: found, Commands: []string{"forebay documents list"}})
}

// branch is a part of a document's pipeline, with its name.
type branch struct {
	Name, What string
	forebay.DocumentBranch
}

type documentData struct{ Document forebay.Document }

// Branches are the parts of the pipeline, in their order.
func (d documentData) Branches() []branch {
	b := d.Document.Branches
	return []branch{{"Split", "the content to chunks", b.Split}, {"Embedding", "chunks to vectors", b.Embedding}, {"Metadata", "title, language, entities", b.Metadata}}
}

// Failed reports whether a part has failed, which can be done again.
func (d documentData) Failed() bool {
	for _, b := range d.Branches() {
		if b.Status == forebay.BranchFailed {
			return true
		}
	}
	return d.Document.Status == forebay.DocumentFailed
}

// show answers GET /documents/{document}.
func show(r *kit.Request) error {
	id := r.PathValue("document")
	d, err := kit.Fetch[forebay.Document](r, "/v1"+kit.Path("documents", id), nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "document", kit.Page{Title: "Document " + id, Section: "/documents", Data: documentData{d}, Commands: []string{"forebay documents show " + id}})
}

// retry answers POST /documents/{document}/retry.
func retry(r *kit.Request) error {
	id := r.PathValue("document")
	if _, err := r.Client.RetryDocument(r.Context(), id); err != nil {
		return err
	}
	return r.Done(kit.Path("documents", id), "What failed of the document is done again.")
}

type deleteData struct {
	Document forebay.Document
	Problem  string
}

// confirmDelete answers GET /documents/{document}/delete.
func confirmDelete(r *kit.Request) error { return deletePage(r, "", 0) }

func deletePage(r *kit.Request, problem string, status int) error {
	id := r.PathValue("document")
	d, err := kit.Fetch[forebay.Document](r, "/v1"+kit.Path("documents", id), nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "delete", kit.Page{Title: "Delete the document " + id, Section: "/documents", Data: deleteData{d, problem}, Status: status, Still: true,
		Commands: []string{"forebay documents delete " + id}})
}

// remove answers POST /documents/{document}/delete.
func remove(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	id := r.PathValue("document")
	if !kit.Typed(form, id) {
		return deletePage(r, "Type the id of the document to confirm. Nothing was deleted.", http.StatusUnprocessableEntity)
	}
	err = r.Client.DeleteDocument(r.On(kit.ReadVersion(form)), id)
	if kit.Changed(err) {
		return deletePage(r, "The document has got other content since the page was shown. Nothing was deleted.", http.StatusConflict)
	}
	if err != nil {
		return err
	}
	return r.Done("/documents", "The document "+id+" is deleted.")
}
