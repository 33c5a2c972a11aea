"""The evidence document is what the committed results say, and verdicts follow from numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench.evidence import claims, document, store
from bench.evidence.plots import style

pytestmark = pytest.mark.long


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["text", "pictures"])
def test_the_document_is_what_the_results_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: bool) -> None:
    """Drawing all pictures takes most of the time, and says nothing of the text and of which pictures there are."""
    monkeypatch.setattr(style, "FOLDER", tmp_path)
    if not drawn:
        monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.touch())
    assert document.text() == document.DOCUMENT.read_text(), "run make evidence"
    written = {path.name for path in tmp_path.iterdir()}
    committed = {path.name for path in (document.DOCUMENT.parent / "images" / "evidence").iterdir()}
    assert written == committed


def test_a_picture_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for name in ("one", "two"):
        monkeypatch.setattr(style, "FOLDER", tmp_path / name)
        figure, axes = style.panels(1)
        axes[0].plot([1, 2], [3, 4])
        style.write(figure, "lines")
        drawn.append((tmp_path / name / "lines.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_a_result_is_read_as_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_verdicts_have_three_steps() -> None:
    assert claims.judged(reproduced=True, partly=True) == "reproduced"
    assert claims.judged(reproduced=False, partly=True) == "partly"
    assert claims.judged(reproduced=False) == "not reproduced"


def test_every_result_is_named_after_its_file_and_tells_its_command() -> None:
    for path in store.FOLDER.glob("*.json"):
        result = store.load(path.stem)
        assert result.name == path.stem
        assert result.command.startswith("python -m bench.")
        assert result.rows


def test_chapters_are_numbered_in_order() -> None:
    headings = [line for line in document.DOCUMENT.read_text().splitlines() if line.startswith("## ")]
    assert [heading.split()[1] for heading in headings] == [f"{number}." for number in range(1, len(headings) + 1)]
    assert len(set(headings)) == len(headings)
