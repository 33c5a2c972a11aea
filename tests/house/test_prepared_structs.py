"""No thread uses a struct while another thread registers it with msgspec, which would crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("controlplane", "gateway", "kvstore", "planning", "routing", "simulator", "web")

FIRST_USES_AT_ONCE = """
import sys, threading
import msgspec
from routing.values.prepared_struct import prepared
sys.setswitchinterval(1e-6)

def chain():
    kind = int
    for depth in range(40):
        fields = [(f"f{number}", int | None, None) for number in range(12)]
        kind = msgspec.defstruct(f"S{depth}", [*fields, ("inner", kind | None, None)])
    return kind

for _ in range(60):
    kind = chain()
    first_use = lambda: msgspec.convert({"inner": {"inner": {"f1": 1}}}, prepared(kind))
    threads = [threading.Thread(target=first_use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_first_uses_of_a_struct_in_several_threads_do_not_crash() -> None:
    assert subprocess.run([sys.executable, "-c", FIRST_USES_AT_ONCE], cwd=ROOT, check=False).returncode == 0


def test_structs_decoded_after_the_import_are_prepared() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{kind.lineno}: {ast.unparse(kind)}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "msgspec." in (text := path.read_text())
        for kind in _kinds(ast.parse(text))
        if not (isinstance(kind, ast.Call) and ast.unparse(kind.func) == "prepared")
        and path.name != "prepared_struct.py"
        and ast.unparse(kind) != "dict[str, Any]"
    ]
    assert bare == []


def _kinds(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the types that msgspec may first process after the import: those of converters and late decoders."""
    at_import = {
        id(node) for item in tree.body if isinstance(item, ast.Assign | ast.AnnAssign) for node in ast.walk(item)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match ast.unparse(node.func):
                case "msgspec.convert":
                    yield node.args[1]
                case "msgspec.json.decode" | "msgspec.msgpack.decode":
                    yield from (keyword.value for keyword in node.keywords if keyword.arg == "type")
                case "msgspec.json.Decoder" | "msgspec.msgpack.Decoder" if id(node) not in at_import:
                    yield from node.args[:1]
