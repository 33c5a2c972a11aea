"""The queue orders of the second simulator: scheduling study §5. Requests that cannot be on time go last."""

from __future__ import annotations

from bench.evidence.second_simulator.placements import Reading
from bench.evidence.second_simulator.station import Job, Station, prefill_s


def take(order: str, station: Station, now: float, reading: Reading) -> Job | None:
    """Remove and return the request that the engine works on next, None if none waits."""
    if order != "fifo":
        estimates = {job.number: _estimate_s(job, station, reading) for job in station.waiting}
        chosen = (
            _late_last(station, now, estimates, reading)
            if order == "late_last"
            else _slack(station, now, estimates, reading)
        )
        if chosen is not None:
            station.waiting.remove(chosen)
            return chosen
    if not station.infeasible:
        return station.waiting.pop(0) if station.waiting else None
    if not reading.infeasible_coming:
        station.expect(station.infeasible[0])
    return station.infeasible.pop(0)


def _estimate_s(job: Job, station: Station, reading: Reading) -> float:
    if reading.estimates == "bound":
        return job.estimate_s
    return prefill_s(job.tokens, job.hit(station.resident(job.blocks)))


def _give_up(job: Job, station: Station, reading: Reading) -> None:
    station.waiting.remove(job)
    station.infeasible.append(job)
    if not reading.infeasible_coming:
        station.expect_no_more(job)


def _late_last(station: Station, now: float, estimates: dict[int, float], reading: Reading) -> Job | None:
    """Return the oldest request that can be on time."""
    for job in list(station.waiting):
        if now + estimates[job.number] <= job.deadline_s:
            return job
        _give_up(job, station, reading)
    return None


def _slack(station: Station, now: float, estimates: dict[int, float], reading: Reading) -> Job | None:
    """Return the shortest request of the feasible set that makes no earlier feasible one late."""
    feasible = _feasible(station, now, estimates, reading)
    end_s, spare_s = now, float("inf")
    chosen = feasible[0] if feasible else None
    for job in feasible:
        seconds = estimates[job.number]
        if chosen is not None and seconds < estimates[chosen.number] and seconds <= spare_s:
            chosen = job
        end_s += seconds
        spare_s = min(spare_s, job.deadline_s - end_s)
    return chosen


def _feasible(station: Station, now: float, estimates: dict[int, float], reading: Reading) -> list[Job]:
    """Return the requests that can all be on time.

    In deadline order, each late one removes the largest so far (Moore 1968).
    """
    feasible: list[Job] = []
    end_s = now
    for job in sorted(station.waiting, key=lambda item: (item.deadline_s, item.number)):
        feasible.append(job)
        end_s += estimates[job.number]
        if end_s > job.deadline_s:
            largest = max(feasible, key=lambda item: (estimates[item.number], -item.number))
            feasible.remove(largest)
            end_s -= estimates[largest.number]
            if now + estimates[largest.number] > largest.deadline_s:
                _give_up(largest, station, reading)
    return feasible
