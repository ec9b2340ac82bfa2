# Compiles the C# of a folder and runs it: run.py PACKAGES FOLDER ARGUMENT...
# PACKAGES has those of package-lock.json. One is a program of Microsoft's with the SDK and
# the runtime of .NET beside it, the other has the compiler, Roslyn.
# That program is one file in 0.6.0, 0.8.6, 1.0.4, 2.0.5 and 3.0.0-beta.46. The assemblies in it
# are cut down to what it calls itself: they have no ServiceBusSender. In 0.8.6, with OpenAI 2.5.0,
# no constructor of OpenAIClient takes options. So these tests stay with 0.5.13.
import json
import os
import pathlib
import shutil
import sys
import tempfile

from clr_loader import get_coreclr
from pythonnet import set_runtime

folder, sources, arguments = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
shipped = folder / "node_modules/@azure/mcp-linux-x64/dist"
compiler = folder / "node_modules/@autorest/csharp"
runtime = json.loads((shipped / "azmcp.runtimeconfig.json").read_text())["runtimeOptions"]
framework = next(f for f in runtime["includedFrameworks"] if f["name"] == "Microsoft.NETCore.App")
version = framework["version"]
home = folder / f"dotnet-{version}"
shared = home / "shared/Microsoft.NETCore.App" / version


def lay_out():
    """Lays the runtime out as its host wants it. Processes may do so side by side."""
    made = pathlib.Path(tempfile.mkdtemp(dir=folder))
    for part in (shared, home / "host/fxr" / version):
        (made / part.relative_to(home)).mkdir(parents=True)
    deps = json.loads((shipped / "azmcp.deps.json").read_text())
    target = deps["runtimeTarget"]["name"]
    pack = f"runtimepack.Microsoft.NETCore.App.Runtime.linux-x64/{version}"
    files = deps["targets"][target][pack]
    for name in [*files["runtime"], *files["native"]]:
        os.link(shipped / name, made / shared.relative_to(home) / name)
    os.link(shipped / "libhostfxr.so", made / "host/fxr" / version / "libhostfxr.so")
    only = {"runtimeTarget": {"name": target}, "targets": {target: {pack: files}},
            "libraries": {pack: {"type": "package", "serviceable": False, "sha512": ""}}}
    (made / shared.relative_to(home) / "Microsoft.NETCore.App.deps.json").write_text(json.dumps(only))
    try:
        made.rename(home)
    except OSError:  # another process was first
        shutil.rmtree(made)


if not home.exists():
    lay_out()
with tempfile.TemporaryDirectory() as work:
    config = pathlib.Path(work) / "runtimeconfig.json"
    config.write_text(json.dumps({"runtimeOptions": {
        "tfm": runtime["tfm"], "framework": framework,
        # The machine may have no ICU.
        "configProperties": {"System.Globalization.Invariant": True, "System.Runtime.TieredPGO": False}}}))
    set_runtime(get_coreclr(runtime_config=str(config), dotnet_root=str(home)))

import clr  # noqa: E402

sys.path += [str(shipped), str(compiler)]
clr.AddReference("Microsoft.CodeAnalysis")
clr.AddReference("Microsoft.CodeAnalysis.CSharp")

from Microsoft.CodeAnalysis import DiagnosticSeverity, MetadataReference, OutputKind, SyntaxTree  # noqa: E402
from Microsoft.CodeAnalysis.CSharp import CSharpCompilation, CSharpCompilationOptions, CSharpSyntaxTree  # noqa: E402
from System import Array, String  # noqa: E402
from System.IO import MemoryStream  # noqa: E402
from System.Reflection import Assembly  # noqa: E402

sdk = ("Azure.Messaging.ServiceBus", "Azure.Core", "Azure.Core.Amqp", "System.ClientModel", "System.Memory.Data",
       "OpenAI", "Azure.AI.OpenAI", "Azure.AI.Inference")
# The runtime has its own, newer than the package's.
references = [*shared.glob("System.*.dll"), shared / "netstandard.dll", shared / "mscorlib.dll",
              *(shipped / f"{name}.dll" for name in sdk if not (shared / f"{name}.dll").exists())]
compilation = CSharpCompilation.Create(
    "program",
    Array[SyntaxTree]([CSharpSyntaxTree.ParseText(source.read_text(), path=source.name) for source in sorted(sources.glob("*.cs"))]),
    Array[MetadataReference]([MetadataReference.CreateFromFile(str(reference)) for reference in references]),
    CSharpCompilationOptions(OutputKind.ConsoleApplication))
program = MemoryStream()
result = compilation.Emit(program)
if not result.Success:
    sys.exit("\n".join(str(d) for d in result.Diagnostics if d.Severity == DiagnosticSeverity.Error))
Assembly.Load(program.ToArray()).EntryPoint.Invoke(None, [Array[String](arguments)])
