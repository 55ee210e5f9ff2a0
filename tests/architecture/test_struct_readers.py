"""No struct is taken apart by two threads at once, which crashes the interpreter with msgspec 0.22.

A reader that is made while its module is imported is made by one thread. So functions use ready readers.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

from architecture.compiled_patterns import SOURCE

_BUILT_IN = {"Any", "bool", "bytes", "dict", "float", "int", "list", "msgspec", "Raw", "str"}
"""What types may be made of that msgspec knows without taking anything apart."""
_MANY_AT_ONCE = """
import sys
import threading

sys.setswitchinterval(1e-6)
from athena.formats.machine.detect import model_table
from athena.profiles import default_profiles
from athena.shells.config.windows import published_window

together = threading.Barrier(8)

def ask():
    together.wait()
    default_profiles()
    model_table()
    published_window("model")

threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_functions_use_readers_that_were_made_while_importing() -> None:
    found = [
        f"{path.relative_to(SOURCE).as_posix()}:{call.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "typed_values.py"
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for call in _readings(function)
    ]
    assert not found, f"make these readers at the module's level (athena.typed_values.reader, msgspec.json.Decoder): {found}"


def _readings(function: ast.AST) -> Iterator[ast.Call]:
    """Calls that have msgspec read a type which is not built in."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        kinds = [word.value for word in node.keywords if word.arg == "type"]
        if name == "reader":
            yield node
        elif name.startswith("msgspec.") and name.endswith(".Decoder"):
            kinds += node.args
        elif name == "msgspec.convert" or (name.startswith("msgspec.") and name.count(".") == 2 and name.endswith(".decode")):
            kinds += node.args[1:2]
        else:
            continue
        names = {part.id for kind in kinds for part in ast.walk(kind) if isinstance(part, ast.Name)}
        if names - _BUILT_IN:
            yield node


def test_threads_may_begin_with_the_library_together() -> None:
    for _ in range(5):  # before: half of such processes ended by a segmentation fault
        done = subprocess.run([sys.executable, "-c", _MANY_AT_ONCE], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_reading_of_a_struct_is_recognized() -> None:
    def count(text: str) -> int:
        return len(list(_readings(ast.parse(text))))

    assert count("msgspec.convert(value, Profile)") == count("msgspec.json.decode(line, type=list[Row])") == 1
    assert count("msgspec.json.Decoder(Row)") == count("reader(Row)") == 1
    assert count("msgspec.json.decode(line)") == count("msgspec.json.decode(line, type=dict[str, msgspec.Raw])") == 0
