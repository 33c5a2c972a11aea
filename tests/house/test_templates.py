"""Breaking wide lines of templates adds no visible white space."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.template_breaker import template_breaker

ROOT = Path(__file__).resolve().parents[2]
WIDE = "x" * 50


@pytest.fixture(scope="module")
def breaker() -> ModuleType:
    return template_breaker()


def test_block_elements_get_their_own_lines(breaker: ModuleType) -> None:
    line = f"<div><p>{WIDE}</p><p>{WIDE}</p></div>"
    assert breaker.broken(line) == f"<div>\n  <p>{WIDE}</p>\n  <p>{WIDE}</p>\n</div>"


def test_adjacent_inline_elements_stay_together(breaker: ModuleType) -> None:
    line = f'<p><b class="a">{WIDE}</b><b class="b">{WIDE}</b></p>'
    assert f"{WIDE}</b><b" in breaker.broken(line)


def test_element_styled_while_empty_gets_no_white_space(breaker: ModuleType) -> None:
    line = f'<p class="setting-error" id="{WIDE}">{{% for each in {WIDE} %}}{{{{ each }}}}{{% endfor %}}</p>'
    assert ">{% for" in breaker.broken(line)
    assert "{% endfor %}</p>" in breaker.broken(line)


def test_element_with_css_before_content_gets_no_white_space(breaker: ModuleType) -> None:
    line = f'<li class="release-timeline-step"><b>{WIDE}</b> <time datetime="{WIDE}">{WIDE}</time></li>'
    assert '<li class="release-timeline-step"><b>' in breaker.broken(line)


def test_breaking_adds_only_white_space_and_is_idempotent(breaker: ModuleType) -> None:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = path.read_text()
        once = breaker.broken(text)
        assert "".join(once.split()) == "".join(text.split()), path
        assert breaker.broken(once) == once, path
