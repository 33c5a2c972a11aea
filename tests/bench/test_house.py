"""Code metrics of bench.house, on generated trees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from bench.house.features import folders_per_feature
from bench.house.words import broken_words, spoken, spoken_by_the_console

ROOT = Path(__file__).resolve().parents[2]
ROOM = {
    "gateway/__init__.py": "",
    "gateway/one/__init__.py": "",
    "gateway/one/a.py": "import gateway.two.b\n\n\ndef longer() -> int:\n    return 1\n",
    "gateway/one/c.py": "import gateway.one.a\n\n\ndef short() -> int:\n    return 1\n",
    "gateway/two/__init__.py": "",
    "gateway/two/b.py": "import gateway.one.c\n# A ticket that nobody hears.\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in ROOM.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_import_pairs_cycles_sizes_and_words_are_counted(tree: Path) -> None:
    # A process of its own, because no room may have been imported where another tree's imports are read.
    command = [sys.executable, "-m", "bench.house", str(tree), str(tree)]
    table = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    (row,) = [line for line in table if line.startswith("| gateway |")]
    before = [cell.partition(" → ")[0].strip("| ") for cell in row.split(" | ")]
    assert before == ["gateway", "6", "12", "5", "2 · 2", "2 (one/)", "1", "1 (3 files)", "1"]


def test_words_are_listed_with_their_lines(tree: Path) -> None:
    assert list(broken_words(tree, ["gateway"])) == [("gateway/two/b.py:2", ["ticket"])]


def test_names_docstrings_and_comments_with_figures_of_speech_are_listed(tree: Path) -> None:
    code = [
        '"""Whoever asks."""', "def tell(place: int, *, found: int) -> None:", "    each, rest = place, found",
        "def test_nobody_looks() -> None:", "    x.told = 1", "def place() -> None: ...",
    ]  # fmt: skip
    (tree / "gateway/two/c.py").write_text("\n".join(code))
    assert sorted(line.partition(": ")[2] for line in spoken(tree, ["gateway/two"])) == [
        "comment # A ticket that nobody hears.",
        "definition tell",
        "docstring Whoever asks.",
        "name each",
        "name found",
        "name place",
        "name told",
        "test test_nobody_looks",
    ]


def test_names_and_comments_of_scripts_and_variables_of_templates_are_listed(tree: Path) -> None:
    (tree / "gateway/a.js").write_text(
        "const lastHeard = 'told';\nthis.#tell(); // nobody asks\nrows.forEach((row) => row.placeholder);\n"
    )
    (tree / "gateway/a.html").write_text("{% for row, each in rows %}\n{% with told=row %}{% url 'x' as place %}")
    assert sorted(spoken_by_the_console(tree, ["gateway"])) == [
        "gateway/a.html:1: variable each",
        "gateway/a.html:2: text told",
        "gateway/a.html:2: variable place",
        "gateway/a.html:2: variable told",
        "gateway/a.js:1: name lastHeard",
        "gateway/a.js:2: comment nobody",
        "gateway/a.js:2: name tell",
    ]


def test_folders_per_feature_are_counted_by_layer_and_by_feature() -> None:
    layers = ["services/canaries.py", "services/pools.py", "models/canary.py", "models/pool.py", "canaries/step.py"]
    features = ["trials/models/canary.py", "trials/canary/step.py", "trials/start.py", "fleet/pools.py"]
    assert folders_per_feature([PurePosixPath(layer) for layer in layers]) == "fleet 2, trials 3"
    assert folders_per_feature([PurePosixPath(feature) for feature in features]) == "fleet 1, trials 1"
