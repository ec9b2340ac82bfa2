package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

// Conditional gives a command that changes or deletes something the flag --if-match, and --new if
// it may make something.
func Conditional(c *cobra.Command, creates bool) *cobra.Command {
	var etag string
	var isNew bool
	c.Flags().StringVar(&etag, "if-match", "", "only if it still has this etag (see -o json)")
	if creates {
		c.Flags().BoolVar(&isNew, "new", false, "only if there is none yet")
		c.MarkFlagsMutuallyExclusive("if-match", "new")
	}
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case isNew:
			c.SetContext(forebay.WithCondition(c.Context(), forebay.IfNew()))
		case c.Flags().Changed("if-match"):
			c.SetContext(forebay.WithCondition(c.Context(), forebay.IfMatch(quoted(etag))))
		}
		return run(c, args)
	}
	return c
}

// quoted returns an entity tag in its quotes, which are awkward in a shell.
func quoted(etag string) string {
	if etag == forebay.AnyETag || strings.HasSuffix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}
