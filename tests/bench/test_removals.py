"""Removals: every edit in the tables still applies, and the runner reports which removals the tests notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.house.removals.__main__ import NOTICED, SURVIVED, Outcome, Runs, run_all, write
from bench.house.removals.removal import Edit, Removal, all_removals, chosen
from bench.house.removals.requirement_table import Requirement
from bench.house.removals.tree_copy import BROKEN, HUNG, TreeCopy, node_id
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
REMOVALS = all_removals()
TREE = {
    "limits.py": "MOST = 3\n\n\ndef over(count: int) -> bool:\n    return count > MOST\n",
    "tests/patience.py": "PATIENCE_S = 180.0\n",
    "tests/test_limits.py": (
        "import pytest\nfrom limits import over\n\n\n"
        "def test_more_is_over() -> None:\n    assert over(4)\n\n\n"
        "def test_the_most_is_not_over() -> None:\n    assert not over(3)\n\n\n"
        "@pytest.mark.skip\ndef test_it_is_skipped() -> None:\n    assert over(4)\n"
    ),
}


def test_every_removal_applies_and_leaves_valid_code(tmp_path: Path) -> None:
    for row, removals in REMOVALS.items():
        for number, removal in enumerate(removals):
            for name, text in removal.texts(ROOT).items():
                if name.endswith(".py"):
                    (tmp_path / f"{row}-{number}-{name.replace('/', '-')}").write_text(text)
    names = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E9,F82", "--output-format=concise"]
    compiled = subprocess.run([*names, str(tmp_path)], capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stdout


def test_edit_of_missing_or_ambiguous_text_is_rejected() -> None:
    edit = Edit("x.py", "limit", "")
    assert edit.applied("a limit") == "a "
    for text in ("", "limit limit"):
        with pytest.raises(ValueError, match=r"x\.py: the removed text occurs"):
            edit.applied(text)
    with pytest.raises(ValueError, match="changes nothing"):
        Edit("x.py", "a", "a").applied("a")


def test_rows_and_parts_are_selected_by_name() -> None:
    assert chosen(REMOVALS, ["R29"], "allowance") == [("R29", REMOVALS["R29"][0])]
    assert len(chosen(REMOVALS, [], "")) == sum(map(len, REMOVALS.values()))
    with pytest.raises(ValueError, match="no removals of R49"):
        chosen(REMOVALS, ["R49"], "")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TreeCopy]:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in TREE.items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text(text)
    yield TreeCopy(tmp_path / "own", tmp_path)
    assert {name: (tmp_path / "own" / name).read_text() for name in TREE} == TREE, "the tree itself stays as it is"


def removal(new: str, *tests: str) -> Removal:
    return Removal("limits.py", "    return count > MOST\n", new, part=new.strip(), tests=tests)


def test_noticed_surviving_and_broken_removals_are_reported(copy: TreeCopy, tmp_path: Path) -> None:
    more, most, skipped = "test_more_is_over", "test_the_most_is_not_over", "test_it_is_skipped"
    known = {"R1": Requirement("holds", "", dict.fromkeys((more, most, skipped), "tests/test_limits.py"))}
    tried = [
        removal("    return False\n", more),
        removal("    return True\n", more),
        removal("    return oops(\n", most),
        removal("    pass\n", skipped),
    ]
    runs = Runs(copy, tmp_path / "resume", PATIENCE_S, resume=False)
    outcomes = run_all([("R1", item) for item in tried], runs, known)
    assert {outcome.part: outcome.verdict for outcome in outcomes} == {
        "return False": NOTICED,
        "return True": SURVIVED,
        "return oops(": BROKEN,
        "pass": BROKEN,
    }
    assert next(outcome for outcome in outcomes if outcome.verdict == NOTICED).why == more
    resumed = Runs(copy, tmp_path / "resume", 0.0, resume=True)
    assert run_all([("R1", item) for item in tried], resumed, known) == outcomes, "nothing was run a second time"
    (copy.path / "tests/test_limits.py").write_text(TREE["tests/test_limits.py"] + "\n")
    assert {item.verdict for item in run_all([("R1", tried[0])], resumed, known)} == {BROKEN}, "a changed test was"


def test_tests_that_exceed_their_time_limit_are_stopped(copy: TreeCopy) -> None:
    assert copy.run([("tests/test_limits.py", "test_more_is_over")], 0.0).how == HUNG


def test_only_parts_marked_as_unproved_may_survive(tmp_path: Path) -> None:
    noticed, survived = Outcome("R1", "a", NOTICED, "test_a"), Outcome("R2", "b", SURVIVED, "")
    marked = Outcome("R2", "c", SURVIVED, "", unproved=True)
    assert write([marked, noticed], tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["parts"] == {"R1": {"a": "noticed: test_a"}, "R2": {"c": "survived"}}
    assert (written["figures"]["removals"], written["figures"]["survived"]) == (2, 1)
    assert not write([noticed, survived], tmp_path / "out.json")
    assert not write([Outcome("R1", "a", NOTICED, "", unproved=True)], tmp_path / "out.json")


def test_name_of_a_test_in_a_class_includes_its_class() -> None:
    file = "tests/controlplane/platform/jobs/test_lease.py"
    assert node_id(ROOT, file, "test_old_token_changes_nothing").split("::")[1] == "NeverTwoHolders"
