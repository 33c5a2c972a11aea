"""Fits an engine profile to a running, idle engine: `python -m bench.engines.calibrate URL --out PROFILE.json`.

The engine speaks vLLM's HTTP API. Prompts of token ids are sent one at a time, first new ones (cold), then prompts with
a cached beginning (hot); their times to first token fit the prefill figures. Then batches of equal prompts decode
together; the time between tokens while all of them run fits the decode figures. Among repeated prefills the fastest
counts, since disturbances only add to a measurement. Times are measured at the client, so the base times include the
cost of HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from bench.engines.profile.profile_fit import PrefillSample, ProfileFit, StepSample, fit_profile, mean_error
from bench.report import write_report
from simulator.engine_models.engine_profile import EngineProfile, write_profile

LENGTHS = (128, 512, 1024, 2048, 4096, 8192, 16_384)
SHARES = (0.5, 0.9)
"""Cached shares of hot prompts."""
BATCHES = (1, 4, 16, 32)
CONTEXTS = (256, 2048, 8192)
DECODED = 48
"""Output tokens of each sequence of a batch."""


class CalibrationError(RuntimeError):
    """The engine cannot be measured. The message states the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The sweep: prompt lengths, batches and contexts in tokens, and repeats."""

    lengths: Sequence[int] = LENGTHS
    shares: Sequence[float] = SHARES
    batches: Sequence[int] = BATCHES
    contexts: Sequence[int] = CONTEXTS
    decoded: int = DECODED
    repeats: int = 3
    vocabulary: int = 30_000
    """Token ids are drawn from 1,000 up to this bound."""


@dataclass(slots=True)
class Answer:
    """One streamed answer: when it was sent, when each piece arrived (including pieces without text), and its usage."""

    sent_s: float
    pieces_s: list[float] = field(default_factory=list)
    completion_tokens: int = 0
    cached_tokens: int | None = None

    @property
    def ttft_s(self) -> float:
        """Seconds to the first text."""
        return self.pieces_s[0] - self.sent_s


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[msgspec.Raw] = []
    usage: _Usage | None = None


class EngineUnderTest:
    """A running engine and the session that measures it."""

    def __init__(self, url: str, model: str, http: aiohttp.ClientSession, sweep: Sweep, seed: int) -> None:
        self.url = url
        self.model = model
        self.sweep = sweep
        self._http = http
        self._rng = random.Random(seed)

    def prompt(self, tokens: int, opening: Sequence[int] = ()) -> list[int]:
        """Return new random token ids, after an opening that may have been sent before."""
        more = tokens - len(opening)
        return [*opening, *(self._rng.randrange(1000, self.sweep.vocabulary) for _ in range(more))]

    async def ask(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        """Send one completion and time its stream. Raises CalibrationError unless it is answered in full."""
        body = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        data = msgspec.json.encode(body)
        answer = Answer(time.perf_counter())
        headers = {"Content-Type": "application/json"}
        async with self._http.post(f"{self.url}/v1/completions", data=data, headers=headers) as response:
            if response.status != 200:
                raise CalibrationError(f"the engine answered {response.status}: {(await response.text())[:200]}")
            async for line in response.content:
                _note(line, answer)
        if not answer.pieces_s or not answer.completion_tokens:
            raise CalibrationError("the stream had no token or no usage; is this a vLLM-compatible engine?")
        return answer


def _note(line: bytes, answer: Answer) -> None:
    if not line.startswith(b"data: {"):
        return
    chunk = msgspec.json.decode(line[6:], type=_Chunk)
    if chunk.choices:
        answer.pieces_s.append(time.perf_counter())
    if chunk.usage is not None:
        answer.completion_tokens = chunk.usage.completion_tokens
        details = chunk.usage.prompt_tokens_details
        answer.cached_tokens = None if details is None else details.cached_tokens


async def measure_prefills(engine: EngineUnderTest, block_tokens: int) -> list[PrefillSample]:
    """Return cold and hot prefills of all lengths, the fastest repeat of each."""
    samples: list[PrefillSample] = []
    # The first request after a start pays for initialization, so it is not timed.
    await engine.ask(engine.prompt(64), 2)
    for length in engine.sweep.lengths:
        fastest: dict[int, float] = {}
        for _ in range(engine.sweep.repeats):
            base = engine.prompt(length)
            cold = await engine.ask(base, 1)
            _keep(fastest, cold.cached_tokens or 0, cold.ttft_s)
            for share in engine.sweep.shares:
                opening = base[: int(length * share)]
                if len(opening) >= block_tokens:
                    hot = await engine.ask(engine.prompt(length, opening), 1)
                    # Engines cache whole blocks; not every engine reports its hits.
                    assumed = len(opening) // block_tokens * block_tokens
                    _keep(fastest, assumed if hot.cached_tokens is None else hot.cached_tokens, hot.ttft_s)
        samples += [PrefillSample(length, hit, seconds) for hit, seconds in sorted(fastest.items())]
    return samples


def _keep(fastest: dict[int, float], hit_tokens: int, seconds: float) -> None:
    fastest[hit_tokens] = min(seconds, fastest.get(hit_tokens, seconds))


async def measure_steps(engine: EngineUnderTest) -> list[StepSample]:
    """Return the decode step time of each batch and context."""
    samples = []
    for batch, context in itertools.product(engine.sweep.batches, engine.sweep.contexts):
        # The first must still be decoding when the last has been prefilled.
        decoded = engine.sweep.decoded + 2 * batch
        prompts = [engine.prompt(context) for _ in range(batch)]
        for prompt in prompts:
            # Cached prompts, so that all sequences begin to decode at about the same time.
            await engine.ask(prompt, 1)
        answers = await asyncio.gather(*(engine.ask(prompt, decoded) for prompt in prompts))
        sample = _step_of(answers, context)
        if sample is not None:
            samples.append(sample)
    return samples


def _step_of(answers: Sequence[Answer], context: int) -> StepSample | None:
    """Return the median time per token while all answers ran, None if they hardly overlapped."""
    start = max(answer.pieces_s[0] for answer in answers)
    end = min(answer.pieces_s[-1] for answer in answers)
    seconds, made = [], []
    for answer in answers:
        within = [at_s for at_s in answer.pieces_s if start <= at_s <= end]
        # A median of fewer gaps would be noise.
        if len(within) < 5:
            return None
        # An engine may send several tokens as one piece.
        tokens_per_piece = answer.completion_tokens / len(answer.pieces_s)
        seconds.append((within[-1] - within[0]) / (len(within) - 1) / tokens_per_piece)
        # Contexts grow while they decode: the sample counts each at the middle of the overlap.
        before = sum(1 for at_s in answer.pieces_s if at_s < start)
        made.append((before + len(within) / 2) * tokens_per_piece)
    return StepSample(len(answers), round(sum(context + item for item in made)), statistics.median(seconds))


async def calibrate(url: str, sweep: Sweep, base: EngineProfile, *, model: str | None, seed: int) -> ProfileFit:
    """Measure the engine at `url` and return the fitted figures. Raises CalibrationError."""
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20) as http:
            engine = EngineUnderTest(url, model or await _first_model(http, url), http, sweep, seed)
            prefills = await measure_prefills(engine, base.block_tokens)
            steps = await measure_steps(engine)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CalibrationError(f"{url}: {type(error).__name__} {error}") from error
    try:
        return fit_profile(prefills, steps)
    except ValueError as error:
        raise CalibrationError(f"too little could be measured: {error}") from error


async def _first_model(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/v1/models") as response:
        if response.status != 200:
            raise CalibrationError(f"{url}/v1/models answered {response.status}; name the model with --model")
        return str((await response.json())["data"][0]["id"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, fit, write the profile, and print the errors of the fit. Return the exit status."""
    options = _parser().parse_args(argv)
    defaults = EngineProfile()
    base = msgspec.structs.replace(
        defaults,
        block_tokens=options.block_tokens or defaults.block_tokens,
        num_blocks=options.num_blocks or defaults.num_blocks,
    )
    sweep = Sweep(
        lengths=options.lengths,
        batches=options.batches,
        contexts=options.contexts,
        decoded=options.decoded,
        repeats=options.repeats,
        vocabulary=options.vocabulary,
    )
    try:
        fit = asyncio.run(calibrate(options.url, sweep, base, model=options.model, seed=options.seed))
    except CalibrationError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 1
    source = f"{options.source or options.url}, measured over HTTP by bench/engines/calibrate.py: {fit.summary}"
    write_profile(options.out, msgspec.structs.replace(base, **fit.figures, source=source))
    figures = {
        **fit.figures,
        "prefill_mean_error": mean_error(fit.prefill_errors),
        "step_mean_error": mean_error(fit.step_errors),
        "prefill_worst_error": max(map(abs, fit.prefill_errors)),
        "step_worst_error": max(map(abs, fit.step_errors)),
    }
    write_report("calibrate", figures, {}, options.json or options.out.with_suffix(".report.json"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.engines.calibrate", description=__doc__)
    add = parser.add_argument
    add("url", type=lambda text: text.rstrip("/"), help="base URL of the engine, without /v1")
    add("--out", type=Path, required=True, help="profile to write")
    add("--json", type=Path, help="report to write (default: next to the profile)")
    add("--model", help="served model (default: the first that /v1/models names)")
    add("--source", help="the measured model, device, engine, and engine version")
    add("--block-tokens", type=int, help="the engine's block size")
    add("--num-blocks", type=int, help="the engine's KV blocks")
    add("--lengths", type=_numbers, default=LENGTHS, help="prompt lengths, comma-separated")
    add("--batches", type=_numbers, default=BATCHES, help="sequences that decode together")
    add("--contexts", type=_numbers, default=CONTEXTS, help="context tokens of each sequence")
    add("--decoded", type=int, default=DECODED, help="output tokens of each sequence")
    add("--repeats", type=int, default=3)
    add("--vocabulary", type=int, default=30_000, help="token ids are drawn from 1,000 up to this")
    add("--seed", type=int, default=0, help="seed of the prompts")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
