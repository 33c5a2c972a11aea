"""Every page of the console in Chromium, with markup in every name: no script runs, no policy violation (R46).

All content of a page is in landmarks with distinct names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from bench.live.live_program import LiveProgram, live_program
from controlplane.project.first_run.seed import ADMIN
from tests.web.axe import landmark_violations
from web.shell.frame import console_is_built

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

API = "api/"


class UnknownParameterError(AssertionError):
    """The tests know no value for a parameter of a page."""


def addresses(values: Mapping[str, str]) -> Iterator[str]:
    """Yield the path of each pattern outside the API, with `values` for its parameters.

    Raise UnknownParameterError for a parameter without a value. Add the value to the test that calls this.
    """
    for pattern in _flat(get_resolver().url_patterns, ""):
        if not pattern.startswith(API):
            yield "/" + _fill(pattern, values)


def _flat(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[str]:
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _flat(pattern.url_patterns, path)
        else:
            yield path


def _fill(pattern: str, values: Mapping[str, str]) -> str:
    parts = []
    for part in pattern.split("<"):
        name, closed, rest = part.partition(">")
        if not closed:
            parts.append(part)
            continue
        name = name.rpartition(":")[2]
        if name not in values:
            raise UnknownParameterError(f"the page /{pattern} needs a value for {name!r}; add it to the test's values")
        parts.append(values[name] + rest)
    return "".join(parts)


MARKUP = "\"'><img src=x onerror=window.ran=1><script>window.ran=1</script>{{7*7}}</textarea></script>"
TABS = 6
WATCH = """
window.violations = [];
addEventListener('securitypolicyviolation', (event) => window.violations.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
SEED = """
import json
from datetime import timedelta
from django.contrib.auth import get_user_model
from django.utils import timezone
from controlplane.models import *
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.actor import program
from controlplane.access.api_keys import create_api_key
from controlplane.policies.publish import draft
from controlplane.platform.snapshot_change import record_change
from django.db import transaction
markup = {markup!r}
with transaction.atomic():
    person = get_user_model().objects.create_user(markup[:140], password="long-enough-password")
    region = Region.objects.get(slug="local")
    policy = Policy.objects.get(slug="default")
    Region.objects.update(name=markup); Policy.objects.update(name=markup); Tenant.objects.update(name=markup)
    tenant = Tenant.objects.first()
    # By the policy's slug, so that the pages of a pool show it too.
    pool = Pool.objects.create(slug="default", name=markup, region=region, served_model=markup, policy=policy)
    engine = Engine.objects.create(engine_id="e1", name=markup[:60], pool=pool, url="http://" + markup,
        connect_url="http://127.0.0.1:1", kv_events_endpoint="tcp://" + markup)
    key, _ = create_api_key(tenant, markup[:120], actor=program("tests"), why=markup)
    version = draft(policy, dict(policy.live_version.routing_document), actor=program("tests"), message=markup)
    now = timezone.now()
    AuditEvent.objects.create(at=now, actor_name=markup, via="console", verb="engine.drain", object_kind="engine",
        object_id=markup, pool_slug="default", before={{markup: markup}}, after={{markup: [markup]}}, why=markup,
        request_id=markup)
    run = JobRun.objects.create(job=markup[:60], started_at=now, finished_at=now, state="failed",
        inputs={{markup: markup}}, plan={{"x": markup}}, outcome={{"reason": markup}}, progress={{markup: 1}},
        lease_owner=markup)
    figures = dict(span_s=1, sessions=1, tenants=1, prompt_tokens=1, output_tokens=1, answered=0, late=0,
        ttft_p50_s=None, ttft_p90_s=None, hit_rate=None, engines=1, policy_versions=[1])
    recording = Recording.objects.create(key="none", name=markup, pool=pool, origin="upload", requests=1,
        file_bytes=1, statistics=figures)
    whatif = WhatIf.objects.create(pool=pool, recording=recording, recording_name=markup, draft=version,
        base=policy.live_version, conditions={{}})
    shadow = Shadow.objects.create(key="none", pool=pool, draft=version, base=policy.live_version, state="failed",
        created_at=now, until=now, ended_at=now, reason=markup)
    Canary.objects.create(key="none", policy=policy, version=version, against=policy.live_version, steps=[0.1],
        step_at=now, min_dwell_s=1, advance="by_hand", guardrails={{}}, state="aborted", reason=markup, why=markup,
        author_name=markup, ended_by=markup, started_at=now, ended_at=now)
    record_change()
print("VALUES" + json.dumps({{"slug": "default", "engine_id": "e1", "key_id": key.key_id, "person_id": str(person.pk),
    "whatif_id": str(whatif.pk), "recording_id": str(recording.pk),
    "run_id": str(run.pk), "shadow_id": str(shadow.pk)}}))
"""


class Visited:
    """Observations on one page: status, errors, violations, and landmarks."""

    def __init__(self, address: str, status: int, kind: str) -> None:
        self.address = address
        self.status = status
        self.kind = kind
        self.violations: list[str] = []
        self.ran = False
        self.errors: list[str] = []
        self.framed = False
        """Whether the page has the console's frame; pages without it are not checked for landmarks."""
        self.landmarks: list[str] = []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    if not console_is_built():
        reason = "the console is not built: run npm ci and npm run build"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with live_program(tmp_path_factory.mktemp("program")) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = ["--no-sandbox", "--disable-background-networking"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=options
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, running: LiveProgram) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=running.url)
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto("/login")
    page.fill("input[name=username]", ADMIN)
    page.fill("input[name=password]", running.secrets.admin_password)
    page.click("main button[type=submit], form button[type=submit]")
    page.wait_for_url(running.url + "/")
    page.close()
    yield context
    context.close()


class Tab:
    """One address in its own tab. Several tabs are open together, so that they share their waits."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        page = self._page = context.new_page()
        # A download is not a page, so the tab does not navigate to it.
        answer = page.request.get(address)
        seen = self._seen = Visited(address, answer.status, answer.headers.get("content-type", ""))
        page.on("dialog", lambda dialog: (seen.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: seen.errors.append(f"error {error}"))
        page.on(
            "console",
            lambda message: seen.errors.append(message.text) if "Content Security Policy" in message.text else None,
        )
        self._is_page = seen.status == 200 and seen.kind.startswith("text/html")
        if self._is_page:
            page.goto(address, wait_until="load")

    def unfold(self) -> None:
        """Open every `<details>` of the page."""
        if self._is_page:
            self._page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")

    def wait(self, milliseconds: int) -> None:
        """Wait this long while all tabs run."""
        self._page.wait_for_timeout(milliseconds)

    def close(self) -> Visited:
        """Close the tab and return the observations of its page."""
        page, seen = self._page, self._seen
        try:
            if self._is_page:
                seen.violations = page.evaluate("window.violations || []")
                seen.ran = bool(page.evaluate("Boolean(window.ran)"))
                seen.framed = page.locator("main").count() > 0
                seen.landmarks = landmark_violations(page) if seen.framed else []
            return seen
        finally:
            page.close()


def visit(context: BrowserContext, addresses: Sequence[str]) -> list[Visited]:
    """Open these addresses at the same time and return their observations."""
    tabs = [Tab(context, address) for address in addresses]
    tabs[0].wait(300)
    for tab in tabs:
        tab.unfold()
    tabs[0].wait(200)
    return [tab.close() for tab in tabs]


@pytest.fixture(scope="module")
def visited(running: LiveProgram, signed_in: BrowserContext) -> list[Visited]:
    """Visit every address once as an administrator."""
    printed = running.shell(SEED.format(markup=MARKUP))
    values = json.loads(printed[printed.index("VALUES") + 6 :])
    values |= {"decision_id": "01a", "session_id": "1", "key": "none", "verb": "step", "name": "kv-1",
        "action": "advance", "number": "1", "act": "note"}  # fmt: skip
    pages = [address for address in addresses(values) if address != "/logout" and not address.endswith("/trace")]
    return [item for start in range(0, len(pages), TABS) for item in visit(signed_in, pages[start : start + TABS])]


def test_no_address_responds_with_a_server_error(visited: list[Visited]) -> None:
    assert [(page.address, page.status) for page in visited if page.status >= 500] == []
    shown = {page.address for page in visited if page.status == 200 and page.kind.startswith("text/html")}
    assert {"/", "/engines", "/policies", "/audit", "/jobs", "/access", "/login"} <= shown
    assert len(shown) >= 8


def test_no_page_breaks_the_content_security_policy(visited: list[Visited]) -> None:
    assert [(page.address, page.violations) for page in visited if page.violations] == []


def test_all_content_of_a_page_is_in_distinct_landmarks(visited: list[Visited]) -> None:
    assert len([page for page in visited if page.framed]) >= 30
    assert {page.address: page.landmarks for page in visited if page.landmarks} == {}


def test_markup_in_names_does_not_run(visited: list[Visited]) -> None:
    assert [page.address for page in visited if page.ran] == []
    assert [(page.address, page.errors) for page in visited if page.errors] == []


def test_names_with_markup_appear_on_pages(
    running: LiveProgram, signed_in: BrowserContext, visited: list[Visited]
) -> None:
    page = signed_in.new_page()
    showing = []
    for item in visited:
        if item.status == 200 and item.kind.startswith("text/html"):
            page.goto(item.address)
            if "<script>window.ran=1</script>" in page.content().replace("&lt;", "<").replace("&gt;", ">"):
                showing.append(item.address)
    page.close()
    assert len(showing) >= 4


def test_inline_code_is_reported_as_a_policy_violation(signed_in: BrowserContext) -> None:
    page = signed_in.new_page()
    page.goto("/login")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')")
    page.wait_for_function("window.violations.length > 0")
    assert not page.evaluate("Boolean(window.ran)")
    page.close()


def test_pattern_with_an_unknown_parameter_raises() -> None:
    with pytest.raises(UnknownParameterError, match="add it"):
        list(addresses({}))
