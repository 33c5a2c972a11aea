"""With `cost: fitted` a simulated router learns its engines' costs as a gateway does, and benefits."""

from __future__ import annotations

import msgspec

from routing.cost.cost_model import PrefillCost
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from simulator.fleet.cost_learning import PUBLISH_INTERVAL_S, CostLearning
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload

FLAT = PrefillCostDocument(base_s=0.4, per_token_s=0, per_token_squared_s=0, per_hit_token_s=0)
"""A written cost that is right on average and sees no worth in a hit."""


def policy(cost: str, written: PrefillCostDocument | None = None) -> RoutingPolicy:
    base = evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"))
    return msgspec.structs.replace(base, cost=cost, prefill_cost=written or base.prefill_cost)


def runs(*policies: RoutingPolicy) -> list[tuple[FleetSimulation, float]]:
    workload = Workload(generate_workload("toolagent_like", seed=7, rows=1200), max_input=20_480)
    results = []
    for item in policies:
        spec = RunSpec(policy=item, engines=4, qps=12.5, warmup=300)
        simulation = run(spec, workload)
        results.append((simulation, report_of(spec, workload, simulation, 0.0).slo_share))
    return results


def test_with_wrong_configured_costs_learned_costs_keep_requests_on_time() -> None:
    asked = (policy("fixed", FLAT), policy("fitted", FLAT), policy("fixed"))
    (_, written), (simulation, learned), (_, right) = runs(*asked)
    assert learned > written + 0.1
    assert learned > right - 0.1
    view = simulation.router.view
    cost = view.roster.costs[0]
    assert cost is not None
    truth = PrefillCost()
    errors = {"learned": 0.0, "written": 0.0}
    for prompt_tokens, hit_tokens in ((8192, 512), (16_384, 0), (16_384, 8192), (8192, 7680)):
        took_s = truth.seconds(prompt_tokens, hit_tokens)
        errors["learned"] += abs(cost.seconds(prompt_tokens, hit_tokens) / view.roster.speeds[0] - took_s) / took_s
        errors["written"] += abs(FLAT.base_s - took_s) / took_s
    assert errors["learned"] < 0.3 * errors["written"]


def test_with_correct_configured_costs_nothing_changes() -> None:
    (fixed, _), (fitted, _) = runs(policy("fixed"), policy("fitted"))
    assert [item.finished_s for item in fixed.history] == [item.finished_s for item in fitted.history]


def update(learning: CostLearning, requests: range) -> None:
    for number in requests:
        learning.dispatched(_decision(number), float(number))
        learning.first_token(f"r{number}", number + 0.5)
        learning.completed(f"r{number}", number + 0.5, 0, 1)


def _decision(number: int):  # a stand-in with the fields that are read
    return msgspec.defstruct("Decided", ["decision_id", "engine_id", "prompt_tokens", "hit_tokens", "loading"])(
        f"r{number}", "e-1", 1000 + number, 0, None
    )


def test_learned_costs_are_published_in_steps_and_only_while_enabled() -> None:
    learning = CostLearning(policy("fitted", FLAT))
    facts = [EngineFacts("e-1", 1, True)]
    assert learning.facts(facts) == facts
    assert [learning.due(moment) for moment in (1.0, PUBLISH_INTERVAL_S, PUBLISH_INTERVAL_S + 1)] == [
        False,
        True,
        False,
    ]
    update(learning, range(80))
    assert learning.facts(facts)[0].cost is not None
    learning.adopt(policy("fixed", FLAT))
    assert learning.facts(facts) == facts
    assert not learning.due(1000.0)


def test_changed_configured_costs_restart_the_learning() -> None:
    learning = CostLearning(policy("fitted", FLAT))
    facts = [EngineFacts("e-1", 1, True)]
    learning.facts(facts)
    update(learning, range(80))
    learning.adopt(policy("fitted", FLAT))
    assert learning.facts(facts) != facts
    learning.adopt(policy("fitted"))
    assert learning.facts(facts) == facts
