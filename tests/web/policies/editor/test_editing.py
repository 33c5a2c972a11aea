"""The editor lists all errors at once, keeps all input, stores only valid drafts, and checks roles, in few queries."""

from __future__ import annotations

import re
from html import unescape

import pytest
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.form import as_posted
from controlplane.policies.document.text import completed, document_text
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft
from tests.page_text import page_text
from tests.web.policies.policy_scene import (
    ACTOR,
    SECOND,
    URL,
    browser_of,
    listed_errors,
    publish_meanwhile,
    sample_of,
    typed,
)
from tests.web.role_clients import make_pool
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
LIVE = completed(SECOND)
WRONG = {**LIVE, "ttft_slo_s": -1, "order": {"name": "fifoo"}, "surprise": 1, "queue_limit": 2.5}
ERRORS = {"order.name", "ttft_slo_s", "queue_limit", "surprise"}


@pytest.mark.parametrize(
    ("query", "queries"),
    [("", 18), ("?draft=3", 18), ("?draft=3&ask=publish", 23), ("?ask=roll-back&version=1", 20), ("?published=2", 18)],
)
def test_editor_takes_few_queries(
    policy: Policy, pool: Pool, query: str, queries: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(30):
        draft(policy, {"ttft_slo_s": 1.0}, actor=ACTOR)
    client = browser_of("operator", pool)
    with django_assert_num_queries(queries):
        assert client.get(URL + query).status_code == 200


def test_pages_have_no_inline_code(policy: Policy, pool: Pool) -> None:
    stored = draft(policy, {"ttft_slo_s": 1.0}, actor=ACTOR)
    client = browser_of("operator", pool)
    pages = [client.get(URL + query) for query in ("", f"?draft={stored.number}&ask=publish", "/compare?from=1&to=2")]
    pages.append(client.post(URL, typed(WRONG)))
    publish_meanwhile(policy, {"ttft_slo_s": 2.0})
    pages.append(client.get(f"{URL}/merge?draft={stored.number}"))
    for answer in pages:
        assert "unsafe" not in answer["Content-Security-Policy"]
        text = page_text(answer)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_every_error_is_listed_at_once_with_its_path_and_nothing_is_stored(policy: Policy, pool: Pool) -> None:
    before = AuditEvent.objects.count()
    client = browser_of("operator", pool)
    for wanted in ("check", "save", "publish"):
        answer = client.post(URL, {**typed(WRONG), "do": wanted})
        assert answer.status_code == 422
        assert listed_errors(answer).keys() == ERRORS
        assert "4 errors. Nothing was stored" in page_text(answer)
    assert PolicyVersion.objects.count() == 2
    assert AuditEvent.objects.count() == before


def test_errors_are_associated_with_their_fields(policy: Policy, pool: Pool) -> None:
    text = page_text(browser_of("operator", pool).post(URL, typed(WRONG)))
    control = re.search(r'<input type="text" id="field-ttft_slo_s"[^>]*>', text)
    assert control is not None
    assert 'aria-describedby="field-ttft_slo_s-help field-ttft_slo_s-error"' in control[0]
    assert 'aria-invalid="true"' in control[0]
    error = re.search(r'<p class="setting-error" id="field-ttft_slo_s-error">(.*?)</p>', text)
    assert error is not None
    assert "-1 is not above 0 s" in error[1]
    assert '<a href="#field-order-name"><code>order.name</code></a>' in text
    assert "did you mean fifo?" in text
    assert text.index('id="error-summary"') < text.index('id="policy-form"')


def test_invalid_json_is_kept_in_the_form_and_across_pages(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    broken = '{"ttft_slo_s": 3, oops </textarea><b>'
    answer = client.post(URL, typed({}, document=broken, message="my  reason"))
    assert answer.status_code == 422
    assert "line 1, column" in listed_errors(answer)[""]
    again = unescape(page_text(client.get(URL)))
    for text in (unescape(page_text(answer)), again):
        assert broken in text
        assert "my reason" in text
    assert "Restored unsaved changes from" in again
    client.post(URL, {"do": "discard"})
    assert broken not in unescape(page_text(client.get(URL)))


def test_valid_draft_is_stored_with_defaults_and_base_and_clears_the_kept_text(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    client.post(URL, typed(WRONG))
    answer = client.post(URL, {**typed({**LIVE, "max_wait_s": 30}), "do": "save"})
    assert (answer.status_code, answer["Location"]) == (302, f"{URL}?draft=3")
    version = PolicyVersion.objects.get(number=3)
    assert (version.based_on, version.message, version.author.username) == (2, "because", "operator")
    assert version.document == {**LIVE, "max_wait_s": 30.0}
    assert version.published_at is None
    assert "Restored unsaved changes" not in page_text(client.get(URL))


def test_saving_the_same_document_again_adds_no_version(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    document = {**LIVE, "max_wait_s": 30}
    client.post(URL, {**typed(document), "do": "save"})
    shown = {"draft": "3", "shown": document_text(document), **as_posted(document)}
    answer = client.post(URL, {**typed(document), **shown, "do": "publish"})
    assert answer["Location"] == f"{URL}?draft=3&ask=publish"
    assert PolicyVersion.objects.count() == 3


def test_key_omitted_in_the_json_is_reported_once_as_missing(policy: Policy, pool: Pool) -> None:
    posted = typed({})
    live = completed(SECOND)
    left = {name: item for name, item in live.items() if name != "admission"}
    left["dispatch_limit"] = {
        name: item for name, item in live["dispatch_limit"].items() if name not in ("mode", "wait_for_memory")
    }
    posted |= {"document": document_text(left)}
    # The editor's script empties the controls of what the JSON does not hold.
    posted |= {path: "" for path in posted if path.startswith("admission.")} | {
        "dispatch_limit.mode": "",
        "dispatch_limit.wait_for_memory": "",
    }
    answer = browser_of("operator", pool).post(f"{URL}/check", posted)
    assert listed_errors(answer) == {}
    page = unescape(re.sub("<[^>]+>", "", page_text(answer)))
    assert re.findall(r"Note at ([^:]+): (is missing[^.]*)", page) == [
        ("admission", "is missing, so its defaults apply"),
        ("dispatch_limit.mode", 'is missing, so its default "pending" applies'),
        ("dispatch_limit.wait_for_memory", "is missing, so its default true applies"),
    ]
    assert "Valid" in page
    nameless = typed({**live, "placement": {}}, **{"placement.name": ""})
    answer = browser_of("pool_operator", pool).post(f"{URL}/check", nameless)
    assert listed_errors(answer)["placement.name"].startswith("is missing; known are")


def test_form_alone_changes_the_document_without_scripts(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    posted = {**typed(LIVE), "max_wait_s": "30", "placement.name": "dual_map", "do": "save"}
    assert client.post(URL, posted).status_code == 302
    document = PolicyVersion.objects.get(number=3).routing_document
    assert document["max_wait_s"] == 30
    assert document["placement"]["name"] == "dual_map"
    assert document["placement"]["params"].items() >= {"rebalance": True, "key_blocks": 2}.items()


def test_publishing_requires_a_change_and_a_message(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    answer = client.post(URL, {**typed(LIVE), "do": "publish"})
    assert listed_errors(answer) == {"": "No difference from the live version, so there is nothing to publish."}
    answer = client.post(URL, {**typed({**LIVE, "max_wait_s": 30}, message=" "), "do": "publish"})
    assert answer.status_code == 422
    assert "Enter a reason in a sentence" in listed_errors(answer)[""]
    assert '<textarea id="message" name="message" rows="2" maxlength="200"' in page_text(answer)
    answer = client.post(URL, {**typed({**LIVE, "max_wait_s": 30}, message="x" * 201), "do": "save"})
    assert "Longer than 200 characters." in listed_errors(answer)[""]
    assert PolicyVersion.objects.count() == 2


def test_form_based_on_an_older_version_leads_to_the_merge(policy: Policy, pool: Pool) -> None:
    publish_meanwhile(policy, {"ttft_slo_s": 1.0})
    client = browser_of("operator", pool)
    answer = client.post(URL, {**typed({**LIVE, "max_wait_s": 30}, base=2), "do": "publish"})
    assert answer["Location"] == f"{URL}/merge?draft=4"
    assert PolicyVersion.objects.get(number=4).based_on == 2


def test_check_endpoint_lists_errors_and_diff_and_stores_nothing(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    answer = client.post(f"{URL}/check", typed(WRONG))
    assert answer.status_code == 200
    assert listed_errors(answer).keys() == ERRORS
    text = page_text(client.post(f"{URL}/check", typed({**LIVE, "max_wait_s": 1})))
    assert 'data-valid="true"' in text
    assert "outside the usual" in text
    assert 'data-path="max_wait_s"' in text
    assert PolicyVersion.objects.count() == 2


@pytest.mark.parametrize("query", ["?draft=99", "?draft=x", "?draft=-1", "?version=1&ask=publish", "?ask=roll-back"])
def test_unknown_address_shows_the_live_version(policy: Policy, pool: Pool, query: str) -> None:
    answer = browser_of("operator", pool).get(URL + query)
    assert answer.status_code == 200
    assert 'id="question"' not in page_text(answer)


@pytest.mark.parametrize(("query", "said"), [("?draft=99", True), ("?draft=1", False), ("", False)])
def test_unknown_version_is_reported(policy: Policy, pool: Pool, query: str, said: bool) -> None:
    page = page_text(browser_of("operator", pool).get(URL + query))
    assert ("There is no v99; this is the live version." in page) is said
    assert ("There is no v" in page) is said


@pytest.mark.parametrize(
    ("role", "reads", "drafts"),
    [
        ("nobody", 403, 403),
        ("pool_viewer", 200, 403),
        ("viewer", 200, 403),
        ("pool_operator", 200, 302),
        ("operator", 200, 302),
        ("superuser", 200, 302),
    ],
)
def test_viewers_read_and_operators_change(policy: Policy, pool: Pool, role: str, reads: int, drafts: int) -> None:
    client = browser_of(role, pool)
    read = client.get(URL)
    assert read.status_code == reads
    assert client.get(f"{URL}/compare?from=1&to=2").status_code == reads
    assert client.get(f"{URL}/state").status_code == reads
    if reads == 200:
        assert ('value="save"' in page_text(read)) is (drafts == 302)
    for wanted in ("save", "discard"):
        assert client.post(URL, {**typed({**LIVE, "max_wait_s": 30}), "do": wanted}).status_code == drafts
    assert client.post(f"{URL}/check", typed(LIVE)).status_code == (200 if drafts == 302 else drafts)
    assert PolicyVersion.objects.count() == (3 if drafts == 302 else 2)


def test_operator_of_one_of_two_pools_may_draft_and_not_publish(policy: Policy, pool: Pool) -> None:
    other = make_pool("other")
    other.policy = policy
    other.save()
    client = browser_of("pool_operator", pool)
    assert 'value="publish"' not in page_text(client.get(URL))
    assert client.post(URL, {**typed({**LIVE, "max_wait_s": 30}), "do": "save"}).status_code == 302
    assert client.post(URL, {**typed({**LIVE, "max_wait_s": 40}), "do": "publish"}).status_code == 403
    assert client.post(f"{URL}/publish", {"version": 3, "instead_of": 2}).status_code == 403
    assert client.post(f"{URL}/roll-back", {"version": 1, "instead_of": 2}).status_code == 403


def test_history_is_paged(policy: Policy, pool: Pool) -> None:
    for _ in range(45):
        draft(policy, {"ttft_slo_s": 1.0}, actor=ACTOR)
    client = browser_of("viewer", pool)
    first = page_text(client.get(URL))
    assert "?below=8" in first
    assert ">v8</a>" in first
    assert ">v7</a>" not in first
    assert ">v7</a>" in page_text(client.get(f"{URL}?below=8"))


def test_comparison_shows_the_differences(policy: Policy, pool: Pool) -> None:
    text = page_text(browser_of("viewer", pool).get(f"{URL}/compare?from=1&to=2"))
    assert "v1 to v2: 2 changes" in text
    assert "<mark>late_last</mark>" in text
    assert "<mark>fifo</mark>" in text


@pytest.mark.parametrize("query", ["", "?from=1", "?from=1&to=99", "?from=x&to=2"])
def test_comparison_with_an_unknown_version_is_not_found(policy: Policy, pool: Pool, query: str) -> None:
    assert browser_of("viewer", pool).get(f"{URL}/compare{query}").status_code == 404


def test_state_reports_the_live_version_and_its_rollout(policy: Policy, pool: Pool, feed: FleetFeed) -> None:
    client = browser_of("viewer", pool)
    state = client.get(f"{URL}/state?version=2").json()
    assert (state["live"], state["author"]) == (2, "Headway")
    assert state["reach"]["done"] is False
    assert client.get(f"{URL}/state?version=1").json()["reach"]["words"] == "v1 is not live: v2 is."
    assert client.get(f"{URL}/state?version=9").json()["reach"] is None
    feed.take(sample_of(pool))
    assert "9.4 requests/s" in page_text(client.get(URL))
