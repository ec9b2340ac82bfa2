package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ours are the assets written for Forebay.
var ours = []string{"dashboard.js", "icon.svg", "style.css"}

// Somebody else's code is embedded only as vendor.json lists it, and its licence is named.
func TestEmbeddedAssetsAreOursOrListed(t *testing.T) {
	text, err := assetFiles.ReadFile("assets/" + vendorFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ File, Package, Version, Path, Licence, Integrity, SHA256 string }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	notices, err := assetFiles.ReadFile("assets/" + noticesFile)
	if err != nil {
		t.Fatal(err)
	}
	known := append(slices.Clone(ours), vendorFile, noticesFile)
	for _, v := range list {
		content, err := assetFiles.ReadFile("assets/" + v.File)
		if err != nil {
			t.Errorf("%s is listed, but not embedded: %v", v.File, err)
			continue
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("%s is not the file that vendor.json lists: its SHA-256 is %x", v.File, sum)
		}
		if v.Path == "" || !strings.HasPrefix(v.Integrity, "sha512-") {
			t.Errorf("vendor.json does not say where %s is from: %+v", v.File, v)
		}
		if entry := v.File + " is from " + v.Package + " " + v.Version + ", licence " + v.Licence; !strings.Contains(string(notices), entry) {
			t.Errorf("%s lacks %q", noticesFile, entry)
		}
		known = append(known, v.File)
	}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			t.Errorf("%s is neither ours nor listed in vendor.json", e.Name())
		}
	}
}

// Pages load no list and no notice.
func TestListsAreNotServed(t *testing.T) {
	_, addresses := loadAssets()
	for _, name := range []string{vendorFile, noticesFile} {
		if at := addresses[name]; at != "" {
			t.Errorf("%s is served at %s", name, at)
		}
	}
	for _, name := range ours {
		if addresses[name] == "" {
			t.Errorf("%s is not served", name)
		}
	}
}

// The pages' tests try colours at one width. So what stands below a width sets none.
func TestNarrowPagesHaveTheSameColours(t *testing.T) {
	style, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	ofWidth := regexp.MustCompile(`(?s)@media[^{]*width[^{]*\{((?:[^{}]|\{[^{}]*\})*)\}`).FindAllSubmatch(style, -1)
	if len(ofWidth) == 0 || bytes.Count(style, []byte("width: 46rem)")) != len(ofWidth) {
		t.Fatalf("%d parts of the style depend on the width", len(ofWidth))
	}
	colours := regexp.MustCompile(`[\s;{](?:--[\w-]+|[\w-]*color|background[\w-]*|fill|stroke|opacity|filter|mix-blend-mode)\s*:`)
	for _, part := range ofWidth {
		if found := colours.Find(part[1]); found != nil {
			t.Errorf("a width sets a colour: %s", found)
		}
	}
}
