"""Sentences of templates as text, for JSON, frames, and attributes."""

from __future__ import annotations

import re

from django.template import Context
from django.template.loader import get_template

_BREAKS = re.compile(r"[ \n]+")


def say(name: str, **facts: object) -> str:
    """Return the text of the template on one line, without markup or escapes; narrow spaces stay."""
    return joined_lines(get_template(name).template.render(Context(facts, autoescape=False)))


def joined_lines(text: str) -> str:
    """Return a rendered template without its line breaks."""
    return _BREAKS.sub(" ", text).strip(" ")
