"""Texts and icons of template tags: unknown values are a dash or empty, and names are escaped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.template import Context, Template

NOW = datetime(2027, 1, 31, 12, 0, tzinfo=UTC)


def said(template: str, **context: Any) -> str:
    return Template("{% load words %}" + template).render(Context(context)).replace("\u202f", " ")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ part|over:all|percent }}", "25.0 %"),
        ("{{ part|over:none|percent }}", "—"),
        ("{{ gone.part|over:all|percent }}", "—"),
        ("{{ part|over:all|in_percent }}", "25.0"),
        ("{{ gone.share|in_percent }}", "—"),
        ("{{ part|over:all|width }}", "25.00%"),
        ("{{ all|over:part|width:1 }}", "100.0%"),
        ("{{ gone.share|width }}", "0.00%"),
        ("{{ part|times:1024|byte_size }}", "2.00 KiB"),
        ("{{ part|over:none|times:100 }}", "0"),
        ('{{ part|counted:"engine" }}', "2 engines"),
        ('{{ part|counted:"prefix,prefixes" }}', "2 prefixes"),
    ],
)
def test_values_are_formatted_as_text(template: str, words: str) -> None:
    assert said(template, part=2, all=8, none=0, gone=None) == words


@pytest.mark.parametrize(
    ("verb", "words"),
    [("engine.drain", "drained"), ("policy.roll_back", "rolled back"), ("job.cancel", "canceled")],
)
def test_audit_verbs_are_in_the_past_tense(verb: str, words: str) -> None:
    assert said("{{ verb|deed }}", verb=verb) == words


def test_time_element_has_its_full_time_as_a_title() -> None:
    at = {"at": NOW - timedelta(minutes=5), "now": NOW}
    assert said("{% with it=at|moment:now %}{% ago it %}{% endwith %}", **at) == (
        '<time datetime="2027-01-31T11:55:00.000+00:00" title="11:55:00">5 min ago</time>'
    )
    assert 'title="11:55:00 UTC"' in said("{% with it=at|moment:now %}{% ago it zone=True %}{% endwith %}", **at)
    exact = said("{% with it=at|moment:now %}{% ago it exact=True %}{% endwith %}", **at)
    assert 'title="2027-01-31 11:55:00 UTC"' in exact
    assert said("{% ago gone %}", gone=None) == ""


def test_icon_has_no_markup_from_its_arguments() -> None:
    assert said("{% shape name %}", name="lost") == '<svg class="icon shape shape-lost"><use href="#s-lost"/></svg>'
    assert said('{% shape "hot" "inline" %}').startswith('<svg class="icon shape shape-hot inline">')
    assert said('{% shape "hot" hidden=True %}').startswith('<svg class="icon shape shape-hot" aria-hidden="true">')
    assert "<script>" not in said("{% shape name %}", name='"><script>')
