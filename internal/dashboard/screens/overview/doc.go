// Package overview has the pages that answer at once: is it well, what needs somebody, when is
// the backlog done, what is called now, which processes are there, where is the thing of this
// id.
package overview
