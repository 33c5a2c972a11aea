"""Two versions of a policy side by side."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.policies.document.diff import diff_runs
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.text import completed, document_text
from web.policies.access import known_version, opened
from web.policies.words import change_lines, version_facts
from web.shell.frame import shell_context


@require_safe
def compare(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the diff from version `from` to version `to`."""
    state = opened(request, slug)
    old, new = known_version(state, request.GET.get("from")), known_version(state, request.GET.get("to"))
    now = timezone.now()
    before, after = completed(old.document), completed(new.document)
    context = shell_context(
        request,
        page="Policies",
        state=state,
        old=version_facts(old, now),
        new=version_facts(new, now),
        changes=change_lines(changes_between(before, after)),
        runs=diff_runs(before, after),
        text=document_text(after),
    )
    return render(request, "policies/compare.html", context)
