package toolchain

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
)

// dotnet has the program that compiles and runs C#, and names the packages that it needs.
//
//go:embed dotnet
var dotnet embed.FS

// DotNet returns a command that compiles the C# of a folder and runs it. A program of Microsoft's
// brings its SDKs and the runtime, for Linux on x86-64 only. Elsewhere the test is skipped.
func DotNet(t testing.TB, sources string, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("the SDKs for .NET are not to be had for %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	Need(t, Node())
	from, err := fs.Sub(dotnet, "dotnet")
	if err != nil {
		t.Fatal(err)
	}
	run, err := fs.ReadFile(from, "run.py")
	if err != nil {
		t.Fatal(err)
	}
	modules := installed(t, "dotnet", from, "package-lock.json", []string{"package.json", "package-lock.json"}, npmCI[0], npmCI[1:]...)
	packages := pythonPackages(t, "dotnet", from)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "python3", slices.Concat([]string{"-c", string(run), modules, sources}, args)...)
	command.Env = append(os.Environ(), "PYTHONPATH="+packages)
	return command
}
