//go:build unix

package toolchain

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInRange(t *testing.T) {
	for _, c := range []struct {
		version, ranges string
		want            bool
	}{
		{"v20.20.2", ">=22.0.0", false},
		{"v22.0.0", ">=22.0.0", true},
		{"v26.10.0", ">=22.0.0", true},
		{"v20.20.2", ">= 20", true},
		{"v20.20.2", ">=20.21", false},
		{"v20.20.2", ">=0.8.x", true},
		{"v20.20.2", "*", true},
		{"v20.20.2", "^18.19.0 || >=20.6.0", true},
		{"v18.18.0", "^18.19.0 || >=20.6.0", false},
		{"v19.0.0", "^18.19.0 || >=20.6.0", false},
		{"v20.20.2", "^20.21.0", false},
		{"v10.1.0", "6.* || 8.* || >= 10.*", true},
		{"v7.0.0", "6.* || 8.* || >= 10.*", false},
		{"v22.3.1", "22", true},
		{"v23.3.1", "22 || 24.1", false},
	} {
		if got, err := inRange(c.version, c.ranges); err != nil || got != c.want {
			t.Errorf("%s in %q: %v, %v", c.version, c.ranges, got, err)
		}
	}
	for _, ranges := range []string{"", "<22", ">=18 <22", "latest", "22 - 24"} {
		if got, err := inRange("v20.20.2", ranges); err == nil {
			t.Errorf("%q is understood: %v", ranges, got)
		}
	}
	if _, err := inRange("twenty", "*"); err == nil {
		t.Error("a version without numbers is taken")
	}
}

// machine has a Node.js of that version, and an npm that installs the newest one. It returns a
// folder with a lock file whose packages ask for a version.
func machine(t *testing.T, version, engines string) (folder string, npmRan func() bool) {
	t.Helper()
	dir := onlyPath(t, map[string]string{
		"node": "echo " + version,
		"npm": `PATH=/usr/bin:/bin
echo "$*" >> "$0.log"
mkdir -p node_modules/.bin
printf '#!/bin/sh\necho v26.10.0\n' > node_modules/.bin/node
chmod +x node_modules/.bin/node`})
	folder = t.TempDir()
	lock := `{"packages": {"": {"name": "tests"}, "node_modules/old": {"engines": ["node >= 0.4"]}, "node_modules/sdk": {"engines": {"node": "` + engines + `"}}}}`
	if err := os.WriteFile(filepath.Join(folder, "package-lock.json"), []byte(lock), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder, func() bool {
		_, err := os.Stat(filepath.Join(dir, "npm.log"))
		return err == nil
	}
}

func TestMachinesNodeIsUsedWhereItFits(t *testing.T) {
	folder, npmRan := machine(t, "v22.1.0", ">=22.0.0")
	if got := NodeFor(t, folder); got != "node" || npmRan() {
		t.Errorf("%s; npm ran: %v", got, npmRan())
	}
}

func TestNewerNodeIsFetchedOnceWhereThePackagesNeedIt(t *testing.T) {
	folder, npmRan := machine(t, "v20.20.2", ">=22.0.0")
	got := NodeFor(t, folder)
	if again := NodeFor(t, folder); filepath.Base(got) != "node" || !filepath.IsAbs(got) || again != got || !npmRan() {
		t.Errorf("%s, then %s; npm ran: %v", got, again, npmRan())
	}
	cache, err := Folder()
	if err != nil || !strings.HasPrefix(got, cache) {
		t.Errorf("%s is not in %s, %v", got, cache, err)
	}
	log, err := os.ReadFile(filepath.Join(os.Getenv("PATH"), "npm.log"))
	if err != nil || strings.Count(string(log), "\n") != 1 || !strings.HasPrefix(string(log), "ci --ignore-scripts") {
		t.Errorf("npm was asked for %q, %v", log, err)
	}
}

// The lock file has one version of Node.js, for each platform on which tests are run often.
func TestNewerNodeIsForEachPlatform(t *testing.T) {
	content, err := newerNode.ReadFile("node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	type platform struct {
		Version, OS, CPU string
	}
	var lock struct{ Packages map[string]platform }
	if err := json.Unmarshal(content, &lock); err != nil {
		t.Fatal(err)
	}
	delete(lock.Packages, "") // the list itself
	versions, platforms := map[string]bool{}, map[string]bool{}
	for _, p := range lock.Packages {
		versions[p.Version] = true
		platforms[p.OS+" "+p.CPU] = true
	}
	want := map[string]bool{"linux x64": true, "linux arm64": true, "darwin x64": true, "darwin arm64": true}
	if len(versions) != 1 || !maps.Equal(platforms, want) {
		t.Errorf("versions %v for %v", versions, platforms)
	}
}
