"""Page text for comparisons, independent of line breaks in templates."""

from __future__ import annotations

import re

from django.http import HttpResponse

from tests.template_breaker import template_breaker

_SHAPES = {"path", "rect", "line", "circle", "polyline", "use"}
_BLOCKS = "|".join(sorted((template_breaker().BLOCKS | template_breaker().LOOSE | _SHAPES) - {"svg"}))
"""Elements beside which white space is nothing: where the script that breaks templates adds lines."""
_BEFORE_BLOCK = re.compile(rf"\s*\n\s*(?=</?(?:{_BLOCKS})\b)")
_AFTER_BLOCK = re.compile(rf"(</?(?:{_BLOCKS})\b[^<>]*>)\s*\n\s*")
_TAG_END = re.compile(r"\s*\n\s*(?=/?>)")
_BREAK = re.compile(r"\s*\n\s*")


def page_text(answer: HttpResponse) -> str:
    """Return a response's HTML without line breaks: removed beside block elements, replaced by a space elsewhere."""
    return unbroken(answer.content.decode())


def unbroken(html: str) -> str:
    """Return HTML without line breaks, as a browser renders it."""
    for pattern, instead in ((_TAG_END, ""), (_BEFORE_BLOCK, ""), (_AFTER_BLOCK, r"\1"), (_BREAK, " ")):
        html = pattern.sub(instead, html)
    return html
