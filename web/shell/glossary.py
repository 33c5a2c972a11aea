"""The glossary: terms of this field in one or two sentences each."""

from __future__ import annotations

from types import MappingProxyType

GLOSSARY = MappingProxyType(
    {
        "ttft": ("TTFT", "Time to first token: seconds from the request's arrival to the first token of its response."),
        "tpot": ("TPOT", "Time per output token: mean seconds between two tokens of one response."),
        "slo": ("SLO", "Service level objective: the TTFT that a pool's policy promises."),
        "on-time": (
            "On time, late, failed, rejected",
            "On time: the first token came within the SLO. Late: it came after. Failed: the request ended "
            "without a complete response. Rejected: Headway answered 429 or 503 without sending it to an "
            "engine.",
        ),
        "prefill": (
            "Prefill, decode",
            "Prefill computes the prompt and ends with the first token. Decode produces the other tokens.",
        ),
        "kv": (
            "KV cache, block, hit",
            "Results of prefill that an engine keeps in blocks. A prompt that begins with the same text reuses "
            "them: a hit. Predicted hits come from Headway's index, reported hits from the engine.",
        ),
        "in-flight": (
            "In-flight work",
            "Prompt tokens without a hit that wait for an engine or run on it, also stated in seconds of prefill.",
        ),
        "assigned": (
            "Assigned, unassigned",
            "A queued request is assigned when its engine is chosen. An unassigned request waits for whichever "
            "engine is free first.",
        ),
        "cv": (
            "Load CV",
            "Coefficient of variation of the engines' pending work: 0 is even. Above 0.8 the load is uneven.",
        ),
        "regret": ("Regret", "Seconds of TTFT that the best other choice would have saved, known afterwards."),
        "beta": ("β", "Weight of compute against waiting in the rule least_cost, which minimizes wait + β × compute."),
        "trust": (
            "Index trust",
            "How well Headway knows an engine's cache: exact (by its events), degraded, or blind.",
        ),
        "pool": ("Pool", "Engines in one region that serve the same model under one policy."),
        "session": ("Session", "Requests of one conversation or agent. A session stays in one arm of a canary."),
        "advisory": (
            "Advisory",
            "A client's notice that a session will soon send its next request, so that its cache can be prepared.",
        ),
    }
)
"""Anchor of the help page → the term, and its meaning."""
