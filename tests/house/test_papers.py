"""docs/papers.md names, for each rule of a paper, files, a caller that reaches them, and a test that does."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house.call_paths import ROOT, files, reached

ENTRIES = {
    "decision": ("gateway/proxy/openai_proxy.py", "gateway/api/route_api.py"),
    "queue": ("routing/router.py",),
    "moves": ("gateway/kv/moves/kv_moves.py",),
    "gateway": ("gateway/__main__.py",),
    "job": ("controlplane/automation/",),
    "page": ("web/",),
    "node": ("kvstore/node/command_line.py",),
    "engine": ("kvstore/connector/vllm_connector.py",),
    "simulator": (
        "simulator/command/simulate.py",
        "simulator/regions/simulate_regions.py",
        "simulator/sessions/command.py",
    ),
}
"""Caller → the files that begin its call paths."""


class Rule(NamedTuple):
    """One row: what it states, its files and folders, its caller, and its test."""

    text: str
    paths: list[str]
    caller: str
    test: str

    def in_part(self, modules: set[Path]) -> bool:
        """Return whether one of the rule's files is among these."""
        return any(file in modules for path in self.paths for file in files(path))


def rows() -> list[list[str]]:
    """Return the cells of all rows of the page's tables."""
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    return [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]


def rules() -> list[Rule]:
    """Return the rules. A row names files and folders from the root, or siblings of the preceding file."""
    listed = []
    for cells in rows():
        if len(cells) == 5 and cells[-1] != "test":
            paths, folder = list[str](), ""
            for name in re.sub(r" \(.*?\)", "", cells[2]).split(", "):
                paths.append(name if "/" in name else folder + name)
                folder = paths[-1].rpartition("/")[0] + "/"
            listed.append(Rule(cells[0], paths, cells[3], cells[4]))
    return listed


@cache
def from_caller(caller: str) -> set[Path]:
    """Return the files that a caller reaches by its imports."""
    return reached(ENTRIES[caller])


def test_files_and_tests_of_the_papers_rules_exist() -> None:
    for rule in rules():
        assert (ROOT / rule.test).is_file(), rule.test
        for path in rule.paths:
            assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file(), path


def test_table_lists_enough_rules_that_a_request_a_job_or_a_person_reaches() -> None:
    callers = [rule.caller for rule in rules()]
    assert len(callers) > 70
    assert sum(caller != "simulator" for caller in callers) >= 57


def test_callers_are_those_that_the_page_explains() -> None:
    explained = {cells[0] for cells in rows() if len(cells) == 2}
    assert {rule.caller for rule in rules()} <= ENTRIES.keys() <= explained


def test_each_rule_is_reached_by_its_caller() -> None:
    assert not [rule.text for rule in rules() if not rule.in_part(from_caller(rule.caller))]


def test_each_file_of_a_rule_is_reached_by_some_caller() -> None:
    """A rule can have parts in several programs. The offline optimum is in the benchmarks only."""
    everywhere = set[Path]().union(*(from_caller(caller) for caller in ENTRIES))
    named = {path for rule in rules() for path in rule.paths if not path.startswith("bench/")}
    assert not [path for path in sorted(named) if everywhere.isdisjoint(files(path))]


def test_each_rules_test_reaches_the_rule() -> None:
    assert not [(rule.text, rule.test) for rule in rules() if not rule.in_part(reached((rule.test,)))]
