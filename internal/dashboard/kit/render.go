package kit

import (
	"bytes"
	"compress/gzip"
	"embed"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed templates/*.html
var shared embed.FS

// Pages are templates of pages by name. They are parsed when one of them is first shown. They
// take more than all else that a process has at its start, and few processes show any.
type Pages struct {
	parsed func() map[string]*template.Template
}

// Parse reads the templates of a package: each file *.html of a folder defines "content", and
// may define other blocks. The page's name is the file's, without the ending. All pages may use
// the blocks that the files of the folder's own folder parts define.
func Parse(files fs.FS, folder string) Pages {
	return Pages{sync.OnceValue(func() map[string]*template.Template { return parse(files, folder) })}
}

func parse(files fs.FS, folder string) map[string]*template.Template {
	names, err := fs.Glob(files, path.Join(folder, "*.html"))
	if err != nil || len(names) == 0 {
		panic("kit: no templates in " + folder)
	}
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(shared, "templates/*.html"))
	if parts, err := fs.Glob(files, path.Join(folder, "parts", "*.html")); err == nil && len(parts) > 0 {
		template.Must(layout.ParseFS(files, parts...))
	}
	pages := map[string]*template.Template{}
	for _, name := range names {
		t := template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		pages[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return pages
}

// Page is what a template gets.
type Page struct {
	Title    string // of the document and the first heading
	Section  string // path of the entry of the navigation that it belongs to
	Data     any
	Commands []string // that do the same
	Status   int      // 0: 200
	Still    bool     // the script does not fetch it again
	Bare     bool     // without navigation: nobody has signed in
}

// View is the value that templates see as dot. Data is the page's own.
type View struct {
	Page
	*Request
	Notice string
	Groups []Group
}

// Calls are the requests that the page has made so far.
func (v View) Calls() []Call { return v.calls.calls }

// Here is the address of the page. What answered a form has none: the page that it belongs to.
func (v View) Here() string {
	if v.Method == http.MethodPost {
		return v.Link(v.Section)
	}
	return v.URL.RequestURI()
}

// InTenant is a command that acts where the page does. A command without the tenant would act in
// the one of the reader's key.
func (v View) InTenant(command string) string {
	if v.Tenant == "" || !strings.HasPrefix(command, "forebay ") || strings.HasPrefix(command, "forebay keys create ") {
		return command
	}
	flag := " --for-tenant " + Shell(v.Tenant)
	if rest, is := strings.CutPrefix(command, "forebay"); is && strings.Contains(command, " -- ") { // no flag may follow that
		return "forebay" + flag + rest
	}
	return command + flag
}

// Asset returns the address of an asset.
func (v View) Asset(name string) string { return v.Site.Assets[name] }

// Theme is "light", "dark", or "" for what the system says.
func (v View) Theme() string {
	if c, err := v.Cookie(ThemeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// ThemeCookie holds the theme that somebody chose.
const ThemeCookie = "forebay_theme"

// Render answers with a page.
func (p Pages) Render(r *Request, name string, page Page) error {
	v := View{Page: page, Request: r, Groups: r.navigation(page.Section)}
	if page.Status == 0 {
		v.Notice = r.takeNotice()
	}
	var out bytes.Buffer
	t, ok := p.parsed()[name]
	if !ok {
		panic("kit: no page " + strconv.Quote(name))
	}
	if err := t.ExecuteTemplate(&out, "layout.html", v); err != nil {
		return err
	}
	status := page.Status
	if status == 0 {
		status = http.StatusOK
	}
	return r.send(status, "text/html; charset=utf-8", out.Bytes())
}

// leastZipped is the size below which compression is of no use.
const leastZipped = 1 << 10

// send answers with a whole body, compressed if the browser takes that.
func (r *Request) send(status int, mediaType string, body []byte) error {
	header := r.Writer.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Vary", "Accept-Encoding, Cookie")
	if len(body) >= leastZipped && AcceptsGzip(r.Request) {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		header.Set("Content-Encoding", "gzip")
		body = out.Bytes()
	}
	r.Begun = true
	r.Writer.WriteHeader(status)
	_, err := r.Writer.Write(body)
	return err
}

// AttachFrom answers with a file to keep. Browsers show nothing of it: a model may have written
// it.
func (r *Request) AttachFrom(name string, body io.Reader) error {
	r.attachment(name)
	r.Writer.Header().Set("Content-Type", textType)
	r.Begun = true
	r.Writer.WriteHeader(http.StatusOK)
	_, err := io.Copy(r.Writer, body)
	return err
}

const textType = "text/plain; charset=utf-8"

func (r *Request) attachment(name string) {
	header := r.Writer.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// AcceptsGzip reports whether a client takes gzip (RFC 9110, section 12.5.3).
func AcceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, parameter, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			quality, found := strings.CutPrefix(strings.ReplaceAll(parameter, " ", ""), "q=")
			return !found || strings.Trim(quality, "0.") != ""
		}
	}
	return false
}
