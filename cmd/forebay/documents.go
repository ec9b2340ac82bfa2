package main

import (
	"cmp"
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// maxDocumentBytes is the highest limit of documents that a server can be configured with.
const maxDocumentBytes = 256 << 20

// documentCommands are the commands about documents.
type documentCommands struct{ *command.App }

func (a documentCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "documents", Short: "Add documents for searches, see and delete them",
		Long: `A document is text, Markdown, HTML or PDF. It is split into chunks, which are embedded. It
becomes searchable as soon as all of it is done.`,
	},
		a.list(),
		command.Show(a.App, &cobra.Command{Use: "show DOCUMENT", Short: "Show a document"},
			command.OfArgument((*client.Client).Document), a.fields),
		a.add(),
		command.Conditional(a.APICommand(&cobra.Command{Use: "delete DOCUMENT", Short: "Delete a document with all that was made of it"},
			func(c *command.Call) error { return c.API.DeleteDocument(c.Ctx, c.Args[0]) }), false),
		command.Show(a.App, &cobra.Command{Use: "retry DOCUMENT", Short: "Do again what failed of a document"},
			command.OfArgument((*client.Client).RetryDocument), a.fields))
}

func (a documentCommands) list() *cobra.Command {
	var f forebay.DocumentFilter
	c := command.Page(a.App, &cobra.Command{Use: "list", Short: "List documents, newest first"},
		func(c *command.Call, _ int) iter.Seq2[forebay.Document, error] { return c.API.Documents(c.Ctx, f) },
		func(d forebay.Document) []command.Field {
			return []command.Field{
				{"DOCUMENT", d.ID}, {"STATUS", string(d.Status)}, {"CHUNKS", command.Count(d.Chunks)},
				{"TITLE", d.Title}, {"UPLOADED", a.When(d.UploadedAt)},
			}
		})
	periodFlags(a.App, c.Flags(), &f.CreatedBefore, &f.CreatedAfter, "added")
	setDefault(c.Flags(), "limit", "0")
	return c
}

func (a documentCommands) fields(d forebay.Document) []command.Field {
	fields := []command.Field{
		{"document", d.ID},
		{"status", string(d.Status)},
		{"searchable", strconv.FormatBool(d.Searchable)},
		{"title", d.Title},
		{"language", d.Language},
		{"name", d.Name},
		{"content type", d.ContentType},
		{"content hash", d.ContentHash},
		{"size", command.Count(d.SizeBytes) + " bytes"},
		{"chunks", command.Count(d.Chunks)},
		{"tokens", command.Count(d.Tokens)},
		{"uploaded", a.When(d.UploadedAt)},
		{"ready", a.WhenPtr(d.ReadyAt)},
		{"split", branchText(d.Branches.Split)},
		{"embedding", branchText(d.Branches.Embedding)},
		{"metadata", branchText(d.Branches.Metadata)},
	}
	for _, e := range d.Entities {
		fields = append(fields, command.Field{e.Type, e.Text})
	}
	return fields
}

// branchText writes how far a branch of the processing is, and its errors.
func branchText(b forebay.DocumentBranch) string {
	text := b.Status
	if b.Total > 1 {
		text += fmt.Sprintf(", %d of %d", b.Done, b.Total)
	}
	for _, e := range b.Errors {
		text += "; " + e.Code + ": " + e.Message
	}
	return text
}

func (a documentCommands) add() *cobra.Command {
	var n forebay.NewDocument
	var from string
	var wait bool
	c := a.APICommand(&cobra.Command{
		Use: "add [FILE]", Aliases: []string{"create"}, Short: "Add a document, or give it other content",
		Long: `Add a document from a file, from standard input ("-") or from a blob storage that the server's
configuration names. Without an id the same content is the same document.`,
		Example: `  forebay documents add report.pdf --wait
  forebay documents add notes.md --id notes --metadata shelf=3
  forebay documents add --from s3://inbox/2026/report.pdf`,
	}, func(c *command.Call) error {
		const one = "name a file, or --from a URL"
		if err := command.ExactlyOne(one, one, len(c.Args) > 0, from != ""); err != nil {
			return err
		}
		d, err := addDocument(c, n, from)
		if err == nil && wait {
			d, err = command.Await(c, (*client.Client).WaitDocument, d.ID)
		}
		if err != nil {
			return err
		}
		if err := c.PrintOne(d, a.fields(d)); err != nil {
			return err
		}
		if d.Status == forebay.DocumentFailed {
			return command.ExitError(command.ExitFailed)
		}
		return nil
	})
	flags := c.Flags()
	flags.StringVar(&n.ID, "id", "", "id of the document (default: made from the content)")
	flags.StringVar(&n.Name, "name", "", "name of the file, if another")
	flags.StringVar(&n.ContentType, "content-type", "", `such as "text/html; charset=iso-8859-1" (default: by name or content)`)
	command.MetadataFlag(flags, &n.Metadata, " to keep with the document")
	flags.StringVar(&from, "from", "", "URL of an object below one of the server's document sources")
	flags.BoolVar(&wait, "wait", false, "wait until it is ready or has failed")
	return c
}

// addDocument adds a document from a URL, or from the file that the command names.
func addDocument(c *command.Call, n forebay.NewDocument, from string) (d forebay.Document, err error) {
	if from != "" {
		d, _, err = c.API.AddDocumentByURL(c.Ctx, forebay.DocumentByURL{NewDocument: n, URL: from})
		return d, err
	}
	content, err := c.ReadFile(c.Ctx, c.Args[0], maxDocumentBytes)
	if err != nil {
		return d, err
	}
	if c.Args[0] != "-" {
		n.Name = cmp.Or(n.Name, filepath.Base(c.Args[0]))
	}
	d, _, err = c.API.AddDocument(c.Ctx, n, content)
	return d, err
}

// maxShownText is how many characters of a chunk a table shows.
const maxShownText = 100

func search(a *command.App) *cobra.Command {
	var req forebay.SearchRequest
	var mode string
	c := a.APICommand(&cobra.Command{
		Use: "search QUERY", Short: "Search the documents that are ready",
		Example: `  forebay search "who pays for repairs?"
  forebay search invoice --mode keyword --limit 20 -o json`,
	}, func(c *command.Call) error {
		req.Query, req.Mode = c.Args[0], forebay.SearchMode(mode)
		found, err := c.API.Search(c.Ctx, req)
		if err != nil {
			return err
		}
		return command.PrintList(c.App, found.Items, searchColumns)
	})
	c.Flags().StringVar(&mode, "mode", "", "hybrid, vector (by meaning) or keyword (default hybrid)")
	c.Flags().IntVar(&req.Limit, "limit", 0, "at most this many chunks, up to 100 (default 10)")
	return c
}

func searchColumns(r forebay.SearchResult) []command.Field {
	return []command.Field{
		{"DOCUMENT", r.DocumentID}, {"SCORE", strconv.FormatFloat(r.Score, 'f', 4, 64)},
		{"CHUNK", strconv.Itoa(r.Position.Chunk)},
		{"BYTES", fmt.Sprintf("%d-%d", r.Position.StartByte, r.Position.EndByte)},
		{"TEXT", command.Shorten(strings.Join(strings.Fields(r.Text), " "), maxShownText+1)},
	}
}
