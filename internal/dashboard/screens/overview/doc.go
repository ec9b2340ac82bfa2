// Package overview has the pages that answer at once. Is it well? What needs somebody? When is
// the backlog done? What is called now? Which processes are there? Where is the thing of this id?
package overview
