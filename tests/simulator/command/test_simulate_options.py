import argparse
import json
from pathlib import Path

import pytest

from routing.policy.policy_document import RoutingPolicy
from simulator.command.simulate_options import SimulateOptionsError, SimulatePlan, add_arguments, plan_from
from simulator.workloads.trace import TraceRow, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [TraceRow(0, 5, 1, ())])
    return path


def plan(trace: Path, *options: str) -> SimulatePlan:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return plan_from(parser.parse_args([str(trace), *options]))


def policy_file(tmp_path: Path, **document: object) -> str:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_without_a_policy_file_nothing_is_limited_and_estimates_are_exact(trace: Path) -> None:
    (task,) = plan(trace, "--slo-ttft", "3").tasks
    policy = task.spec.policy
    assert (policy.placement.name, policy.order.name, policy.ttft_slo_s) == ("least_cost", "fifo", 3.0)
    assert (policy.prefill_window_tokens, policy.lookahead_s, policy.queue_limit) == (1, 0.0, 1_000_000)
    assert policy.prefill_cost.per_token_s == task.spec.profile.prefill_per_token_s


def test_a_policy_file_applies_and_options_override_single_values(trace: Path, tmp_path: Path) -> None:
    name = policy_file(tmp_path, placement={"name": "least_cost", "params": {"beta": 2}}, ttft_slo_s=1.5, queue_limit=9)
    (task,) = plan(trace, "--policy-file", name, "--order", "slack", "--param", "prefill_window_tokens=99").tasks
    policy = task.spec.policy
    assert policy.placement.params == {"beta": 2}
    assert (policy.order.name, policy.ttft_slo_s, policy.queue_limit, policy.prefill_window_tokens) == (
        "slack",
        1.5,
        9,
        99,
    )


def test_a_parameter_is_assigned_to_its_stage(trace: Path) -> None:
    (task,) = plan(trace, "--param", "beta=4").tasks
    assert task.spec.policy.placement.params == {"beta": 4}
    (task,) = plan(trace, "--placement", "dual_map", "--param", "placement.virtual_nodes=7").tasks
    assert task.spec.policy.placement.params == {"virtual_nodes": 7}


def test_eviction_comes_from_the_profile_unless_given(trace: Path, tmp_path: Path) -> None:
    profile = tmp_path / "chance.json"
    profile.write_text('{"eviction": "rlt", "num_blocks": 7}')
    chosen = [
        plan(trace, *options).tasks[0].spec.profile
        for options in ([], ["--eviction", "rlt"], ["--profile", str(profile)])
    ]
    assert [item.eviction for item in chosen] == ["lru", "rlt", "rlt"]
    (task,) = plan(trace, "--profile", str(profile), "--eviction", "lru").tasks
    assert (task.spec.profile.eviction, task.spec.profile.num_blocks) == ("lru", 7)


def test_with_all_a_parameter_applies_to_placements_that_have_it(trace: Path) -> None:
    tasks = plan(trace, "--all", "--order", "fifo", "--param", "virtual_nodes=7").tasks
    by_name = {task.spec.policy.placement.name: task.spec.policy.placement.params for task in tasks}
    assert by_name["dual_map"] == {"virtual_nodes": 7}
    assert by_name["round_robin"] == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--param", "gamma=1"], ["gamma is no parameter", "placement.beta"]),
        (["--param", "beta=-1"], ["placement.params", "beta"]),
        (["--param", "beta=[1]"], ["must be a number"]),
        (["--param", "queue_limit=0"], ["queue_limit"]),
        (["--warmup", "9", "--requests", "9"], ["leaves nothing"]),
        (["--profile", "nothing-like-it"], ["--profile", "unknown"]),
        (["--eviction", "mru"], ["--eviction", "'mru' is unknown; known are lru, rlt"]),
        (["--seeds", "0", "--max-input", "x"], ["--seeds", "--max-input"]),
        (["--slo-tpot", "nan"], ["--slo-tpot"]),
        (["--policy-file", "missing.json"], ["--policy-file", "No such file"]),
    ],
)
def test_errors_name_their_option(trace: Path, options: list[str], words: list[str]) -> None:
    with pytest.raises(SimulateOptionsError) as caught:
        plan(trace, *options)
    for word in words:
        assert word in str(caught.value)


def test_an_unusable_policy_file_is_reported_with_its_path(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(SimulateOptionsError, match=r"is no policy.*queue_limit"):
        plan(trace, "--policy-file", policy_file(tmp_path, queue_limit="many"))


@pytest.mark.parametrize(
    ("options", "engines", "prefill"),
    [
        ([], 8, 0),
        (["--engines", "3"], 3, 0),
        (["--prefill", "2", "--decode", "3"], 5, 2),
        (["--prefill", "2", "--engines", "6"], 6, 2),
        (["--decode", "2", "--engines", "6", "--engine-model", "pd"], 6, 4),
    ],
)
def test_a_fleet_can_have_roles(trace: Path, options: list[str], engines: int, prefill: int) -> None:
    (task,) = plan(trace, *options).tasks
    assert (task.spec.engines, task.spec.prefill) == (engines, prefill)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prefill", "2"], "needs both"),
        (["--prefill", "0", "--decode", "2"], "--prefill: '0' is not a whole number from 1"),
        (["--prefill", "2", "--decode", "2", "--engines", "5"], "5 are not 2 that prefill and 2 that decode"),
        (["--decode", "5", "--engines", "5"], "5 are not 0 that prefill"),
        (["--prefill", "1", "--decode", "1", "--engine-model", "chunked"], "leave out chunked"),
    ],
)
def test_inconsistent_roles_are_rejected(trace: Path, options: list[str], words: str) -> None:
    with pytest.raises(SimulateOptionsError, match=words):
        plan(trace, *options)


def test_a_policy_files_automations_apply_unless_others_are_given(trace: Path, tmp_path: Path) -> None:
    name = policy_file(tmp_path, automation={"scaling": {"mode": "act"}})
    (task,) = plan(trace, "--policy-file", name).tasks
    assert task.automation is not None
    assert (task.automation.scaling.mode, type(task.spec.policy)) == ("act", RoutingPolicy)
    other = tmp_path / "automation.json"
    other.write_text('{"scaling": {"mode": "off"}}')
    (task,) = plan(trace, "--policy-file", name, "--automation", str(other)).tasks
    assert task.automation is not None
    assert task.automation.scaling.mode == "off"
