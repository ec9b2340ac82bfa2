package openai

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/files"
)

// What a form has beside its file is bounded, in headers too. The file is not.
func TestBoundsOfForms(t *testing.T) {
	t.Parallel()
	const begin, end = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n", "\r\n--b--\r\n"
	many := "--b\r\nX: " + strings.Repeat("x", formBytes) + "\r\n\r\n\r\n"
	for name, c := range map[string]struct {
		body    string
		refused bool
	}{
		"a large file":          {begin + "\r\n" + strings.Repeat("x", 3*formBytes) + end, false},
		"a header":              {begin + "X: " + strings.Repeat("x", formBytes) + "\r\n\r\nx" + end, true},
		"a header of a field":   {many + begin + "\r\nx" + end, true},
		"lines before the form": {strings.Repeat("x\r\n", formBytes) + begin + "\r\nx" + end, true},
	} {
		form := newFileForm(strings.NewReader(c.body), "b", &files.Upload{})
		file, err := form.next()
		if err == nil {
			var n int64
			n, err = io.Copy(io.Discard, formPart{file, form})
			if err == nil && n != 3*formBytes && !c.refused {
				t.Errorf("%s: %d bytes", name, n)
			}
		}
		if (err != nil) != c.refused || err != nil && !errors.Is(err, errForm) {
			t.Errorf("%s: %v", name, err)
		}
	}
	form := newFileForm(strings.NewReader(begin+"\r\nx\r\n"+many+end), "b", &files.Upload{})
	file, err := form.next()
	if err == nil {
		_, err = io.Copy(io.Discard, formPart{file, form})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := form.next(); !errors.Is(err, errForm) {
		t.Errorf("after the file: %v", err)
	}
}
