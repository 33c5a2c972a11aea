"""Page text for comparisons, independent of line breaks in templates."""

from __future__ import annotations

import re

from django.http import HttpResponse

_BLOCKS = (
    "html|head|body|main|section|header|footer|article|aside|nav|div|p|h1|h2|h3|h4|h5|h6|ul|ol|li|dl|dt|dd|table|caption|"
    "colgroup|col|thead|tbody|tfoot|tr|td|th|form|fieldset|legend|figure|figcaption|details|summary|dialog|hr|select|"
    "datalist|option|optgroup|meta|link|script|title|template|g|path|rect|line|circle|polyline|use"
)
"""Elements beside which white space draws nothing."""
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
