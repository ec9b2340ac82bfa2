package kit

import (
	"net/url"
	"strings"
)

// Path joins names to a path. Each is escaped, so that none of them can address anything else.
func Path(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		if name == "." || name == ".." {
			name = strings.ReplaceAll(name, ".", "%2E")
		} else {
			name = url.PathEscape(name)
		}
		b.WriteString(name)
	}
	return b.String()
}
