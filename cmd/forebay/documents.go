package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// maxDocumentBytes is the most a server can be configured to take.
const maxDocumentBytes = 256 << 20

func (a *app) documents() *cobra.Command {
	var limit int
	var before, after string
	list := a.apiCommand("list", "List documents, newest first", nil, func(ctx context.Context, api *client.Client, _ []string) (err error) {
		var f forebay.DocumentFilter
		if f.CreatedBefore, err = a.parseTime("before", before, true); err != nil {
			return err
		}
		if f.CreatedAfter, err = a.parseTime("after", after, true); err != nil {
			return err
		}
		return printList(a, api.Documents(ctx, f), limit, []column[forebay.Document]{
			{"DOCUMENT", func(d forebay.Document) string { return d.ID }},
			{"STATUS", func(d forebay.Document) string { return string(d.Status) }},
			{"CHUNKS", func(d forebay.Document) string { return count(d.Chunks) }},
			{"TITLE", func(d forebay.Document) string { return d.Title }},
			{"UPLOADED", func(d forebay.Document) string { return a.when(d.UploadedAt) }},
		})
	})
	list.Flags().IntVar(&limit, "limit", 0, "how many at most (default: all)")
	list.Flags().StringVar(&before, "before", "", "only added before this time, or longer ago than this")
	list.Flags().StringVar(&after, "after", "", "only added since this time, or in the last so much time")
	get := a.apiCommand("get", "Show a document", []string{"DOCUMENT"}, func(ctx context.Context, api *client.Client, args []string) error {
		d, err := api.Document(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printDocument(d)
	})
	remove := a.apiCommand("delete", "Delete a document with all that was made of it", []string{"DOCUMENT"}, func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteDocument(ctx, args[0])
	})
	retry := a.apiCommand("retry", "Do again what failed of a document", []string{"DOCUMENT"}, func(ctx context.Context, api *client.Client, args []string) error {
		d, err := api.RetryDocument(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printDocument(d)
	})
	return a.group("documents", "Add documents for searches", `A document is text, Markdown, HTML or PDF. It is split into chunks, which are embedded, and becomes
searchable as soon as all of it is done.`, a.documentsAdd(), list, get, remove, retry)
}

func (a *app) documentsAdd() *cobra.Command {
	var n forebay.NewDocument
	var address string
	var metadata []string
	var wait bool
	c := &cobra.Command{
		Use: "add [FILE]", Short: "Add a document, or give it other content", Args: arguments(0, "FILE"),
		Long: `Add a document from a file, from standard input ("-") or from a blob storage that the server's
configuration names. Without an id the same content is the same document.`,
		Example: `  forebay documents add report.pdf --wait
  forebay documents add notes.md --id notes --metadata shelf=3
  forebay documents add --from s3://inbox/2026/report.pdf`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if (len(args) == 0) == (address == "") {
				return usagef("name a file, or --from a URL")
			}
			for _, entry := range metadata {
				key, value, ok := strings.Cut(entry, "=")
				if !ok {
					return usagef("--metadata must be key=value")
				}
				if n.Metadata == nil {
					n.Metadata = map[string]string{}
				}
				n.Metadata[key] = value
			}
			d, err := a.addDocument(c.Context(), n, address, args)
			if err != nil {
				return err
			}
			if wait {
				api, err := a.patient()
				if err != nil {
					return err
				}
				if d, err = api.WaitDocument(c.Context(), d.ID); err != nil {
					return err
				}
			}
			if err := a.printDocument(d); err != nil {
				return err
			}
			if d.Status == forebay.DocumentFailed {
				return &failure{code: exitFailed}
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&n.ID, "id", "", "id of the document (default: made from the content)")
	flags.StringVar(&n.Name, "name", "", "name of the file, if another")
	flags.StringVar(&n.ContentType, "content-type", "", `what it is, such as "text/html; charset=iso-8859-1" (default: by its name or content)`)
	flags.StringArrayVar(&metadata, "metadata", nil, "key=value, which comes back with it; may be repeated")
	flags.StringVar(&address, "from", "", "URL of an object below one of the server's document sources")
	flags.BoolVar(&wait, "wait", false, "wait until it is ready or has failed")
	return c
}

func (a *app) addDocument(ctx context.Context, n forebay.NewDocument, address string, args []string) (forebay.Document, error) {
	api, err := a.client()
	if err != nil {
		return forebay.Document{}, err
	}
	if address != "" {
		d, _, err := api.AddDocumentByURL(ctx, forebay.DocumentByURL{NewDocument: n, URL: address})
		return d, err
	}
	content, err := a.readFile(ctx, args[0], maxDocumentBytes)
	if err != nil {
		return forebay.Document{}, err
	}
	if n.Name == "" && args[0] != "-" {
		n.Name = filepath.Base(args[0])
	}
	d, _, err := api.AddDocument(ctx, n, content)
	return d, err
}

func (a *app) printDocument(d forebay.Document) error {
	rows := [][2]string{
		{"document", d.ID},
		{"status", string(d.Status)},
		{"searchable", strconv.FormatBool(d.Searchable)},
		{"title", d.Title},
		{"language", d.Language},
		{"name", d.Name},
		{"content type", d.ContentType},
		{"content hash", d.ContentHash},
		{"size", strconv.FormatInt(d.SizeBytes, 10) + " bytes"},
		{"chunks", count(d.Chunks)},
		{"tokens", count(d.Tokens)},
		{"uploaded", a.when(d.UploadedAt)},
	}
	if d.ReadyAt != nil {
		rows = append(rows, [2]string{"ready", a.when(*d.ReadyAt)})
	}
	for _, b := range []struct {
		name string
		forebay.DocumentBranch
	}{{"split", d.Branches.Split}, {"embedding", d.Branches.Embedding}, {"metadata", d.Branches.Metadata}} {
		said := b.Status
		if b.Total > 1 {
			said += fmt.Sprintf(", %d of %d", b.Done, b.Total)
		}
		for _, e := range b.Errors {
			said += "; " + e.Code + ": " + e.Message
		}
		rows = append(rows, [2]string{b.name, said})
	}
	for _, e := range d.Entities {
		rows = append(rows, [2]string{e.Type, e.Text})
	}
	return a.printOne(d, rows)
}

// maxShownText is how much of a chunk a table shows.
const maxShownText = 100

func (a *app) search() *cobra.Command {
	req := forebay.SearchRequest{}
	mode := ""
	c := &cobra.Command{
		Use: "search QUERY", Short: "Search the documents that are ready", Args: arguments(1, "QUERY"),
		Example: `  forebay search "who pays for repairs?"
  forebay search invoice --mode keyword --limit 20 -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			req.Query, req.Mode = args[0], forebay.SearchMode(mode)
			found, err := api.Search(c.Context(), req)
			if err != nil {
				return err
			}
			return printList(a, all(found.Items), 0, []column[forebay.SearchResult]{
				{"DOCUMENT", func(r forebay.SearchResult) string { return r.DocumentID }},
				{"SCORE", func(r forebay.SearchResult) string { return strconv.FormatFloat(r.Score, 'f', 4, 64) }},
				{"CHUNK", func(r forebay.SearchResult) string { return strconv.Itoa(r.Position.Chunk) }},
				{"BYTES", func(r forebay.SearchResult) string {
					return fmt.Sprintf("%d-%d", r.Position.StartByte, r.Position.EndByte)
				}},
				{"TEXT", func(r forebay.SearchResult) string {
					text := []rune(strings.Join(strings.Fields(r.Text), " "))
					if len(text) > maxShownText {
						text = append(text[:maxShownText], '…')
					}
					return string(text)
				}},
			})
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "hybrid, vector (by meaning) or keyword (default hybrid)")
	c.Flags().IntVar(&req.Limit, "limit", 0, "how many chunks, up to 100 (default 10)")
	return c
}
