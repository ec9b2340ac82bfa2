// Package documents has the pages about documents and the search over them.
package documents
