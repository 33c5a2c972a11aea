"""The hard edges by number, each with the tests that hold it: none may vanish unnoticed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

TESTS = {
    "R16": ["controlplane/services/test_policy_problems.py::test_a_document_that_breaks_one_rule_is_refused_whole"],
    "R18": ["controlplane/api/test_revisions.py::test_"],
    "R30": ["controlplane/api/test_hostile_input.py::test_", "gateway/test_json_body.py::test_"],
    "R31": ["hard_edges/test_bodies.py::test_a_chunked_body_is_refused_as_soon_as_it_is_too_large"],
    "R32": ["hard_edges/test_bodies.py::test_encoded_bodies_are_not_unpacked"],
    "R33": ["hard_edges/test_slow_clients.py::test_half_open_heads_and_slow_bodies_are_closed"],
    "R34": ["web/test_stalled_viewers.py::test_fifty_stalled_viewers_of_two_hundred_cost_little_and_leave"],
    "R35": [
        "web/test_consumers.py::test_a_foreign_or_missing_origin_is_refused",
        "web/test_session_watch.py::test_an_ended_session_is_noticed_within_five_seconds",
        "controlplane/api/test_authentication.py::test_a_session_changes_nothing_without_its_csrf_token",
        "web/test_access.py::test_no_change_goes_by_a_link_or_a_forged_form",
    ],
    "R36": ["hard_edges/test_garbage_metrics.py::test_garbage_is_refused_and_costs_the_others_nothing"],
    "R38": ["hard_edges/test_engine_credentials.py::test_an_engine_that_redirects_takes_the_bearer_nowhere"],
    "R39": ["hard_edges/test_prompts_and_names.py::test_no_file_holds_a_prompt"],
    "R40": [
        "gateway/test_json_log.py::test_an_event_of_the_gateway_is_flat_and_cannot_break_out",
        "hard_edges/test_prompts_and_names.py::test_every_log_line_is_one_flat_json_object",
    ],
    "R43": ["controlplane/api/test_authentication.py::test_a_dump_of_the_database_holds_no_usable_key"],
    "R44": ["controlplane/api/test_role_matrix.py::test_", "web/test_page_roles.py::test_"],
    "R45": ["hard_edges/test_no_code_on_wires.py::test_no_source_reads_code"],
    "R46": ["hard_edges/test_pages_in_browser.py::test_no_page_breaks_the_content_security_policy"],
    "R50": ["hard_edges/test_unsafe_start.py::test_manage_py_up_refuses"],
}


@cache
def functions(path: Path) -> dict[str, int]:
    """Return the names of a module's tests and how many assertions each makes, pytest.raises among them."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found[node.name] = sum(_asserts(each) for each in ast.walk(node))
    return found


def _asserts(node: ast.AST) -> bool:
    raises = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("raises", "fail")
    return raises or isinstance(node, ast.Assert)


@pytest.mark.parametrize("number", TESTS)
def test_a_requirement_has_tests_that_can_fail(number: str) -> None:
    for name in TESTS[number]:
        file, _, start = name.partition("::")
        matching = {test: asserts for test, asserts in functions(ROOT / file).items() if test.startswith(start)}
        assert matching, f"{number}: {name} is gone"
        assert any(matching.values()), f"{number}: {name} asserts nothing"
