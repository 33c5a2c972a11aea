"""The evidence document matches the committed results, and verdicts follow from numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.evidence import document, store, template_filters
from bench.evidence.chapters import verdicts
from bench.evidence.chapters.capacity import limits
from bench.evidence.plots import style
from bench.evidence.verdicts.verdict import judged

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def claims() -> dict[str, Any]:
    """Return the figures of the table of verdicts, which take longest, computed once."""
    return verdicts.figures()


def test_document_matches_the_results(claims: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "figures", lambda: claims)
    assert document.text() == document.DOCUMENT.read_text(), "run make evidence"


@pytest.mark.thorough
def test_document_links_the_drawn_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "FOLDER", tmp_path)
    document.draw()
    assert {path.name for path in tmp_path.iterdir()} == _linked()


def test_exactly_the_linked_charts_are_committed() -> None:
    committed = {path.name for path in (document.DOCUMENT.parent / "images" / "evidence").iterdir()}
    assert committed == _linked()


def _linked() -> set[str]:
    return set(re.findall(r"\(images/evidence/([\w-]+\.svg)\)", document.DOCUMENT.read_text()))


def test_template_with_an_unknown_figure_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "CHAPTERS", (limits,))
    monkeypatch.setattr(limits, "figures", dict)
    with pytest.raises(LookupError, match=r"no infinite\.0"):
        document.text()


def test_every_computed_verdict_is_in_the_table(claims: dict[str, Any]) -> None:
    """A verdict without a row in the document would never be read."""
    words = Counter(re.findall(r"\*\*([a-z ]+)\*\* \|", document.DOCUMENT.read_text()))
    assert words == Counter(_verdicts(claims))


def _verdicts(claims: dict[str, Any]) -> Iterator[str]:
    if "verdict" in claims:
        yield claims["verdict"]
        return
    for claim in claims.values():
        yield from _verdicts(claim)


def test_figures_are_formatted() -> None:
    assert template_filters.num(0.9482, ".1%") == "94.8%"
    assert template_filters.num(None, ".1f") == ""
    assert template_filters.nums([1.26, None, 3], ".1f") == "1.3 /  / 3.0"
    assert template_filters.span([3.0, 1.0, 2.0], "+.1f") == "+1.0 to +3.0"


def test_chart_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for name in ("one", "two"):
        monkeypatch.setattr(style, "FOLDER", tmp_path / name)
        figure, axes = style.panels(1)
        axes[0].plot([1, 2], [3, 4])
        style.write(figure, "lines")
        drawn.append((tmp_path / name / "lines.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_saved_result_loads_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    rows: list[store.Row] = [{"a": "x", "n": 0.123456789}, {"a": "y", "n": 2}]
    store.save(store.Result(name="r", command="c", settings={}, rows=rows))
    result = store.load("r")
    assert result.number("n", a="x") == 0.123457
    assert result.find(a="y")["n"] == 2
    with pytest.raises(LookupError, match="0 rows"):
        result.find(a="z")
    with pytest.raises(LookupError, match="not a number"):
        result.number("a", a="x")
    with pytest.raises(store.MissingResultError, match="--measure other"):
        store.load("other")


def test_verdicts_have_three_grades() -> None:
    assert judged(reproduced=True, partly=True) == "reproduced"
    assert judged(reproduced=False, partly=True) == "partly"
    assert judged(reproduced=False) == "not reproduced"


def test_every_result_has_the_name_of_its_file_and_a_command() -> None:
    for path in store.FOLDER.glob("*.json"):
        result = store.load(path.stem)
        assert result.name == path.stem
        assert result.command.startswith("python -m bench.")
        assert result.rows


def test_chapters_are_numbered_in_order() -> None:
    headings = [line for line in document.DOCUMENT.read_text().splitlines() if line.startswith("## ")]
    assert [heading.split()[1] for heading in headings] == [f"{number}." for number in range(1, len(headings) + 1)]
    assert len(set(headings)) == len(headings)
