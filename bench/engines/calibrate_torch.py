"""Fits an engine profile to a decoder-only transformer of random weights, timed with PyTorch.

    python -m bench.engines.calibrate_torch --shape 8b --device cuda --out PROFILE.json

Needs PyTorch, which is not a dependency of this project, and otherwise only the standard library, so that it runs on
any machine with an accelerator. The model is dense and like Llama: RMS norms, rotary positions, grouped-query
attention, SwiGLU; random weights cost as much as trained ones. It times prefills of u tokens after a cached prefix, and
decode steps of a batch, replayed from a CUDA graph as engines do. It does not time the engine's own scheduling,
sampling beyond argmax, or paging.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.engines.profile.profile_fit import PrefillSample, ProfileFit, StepSample, fit_profile, mean_error
from bench.engines.profile.torch_model import SHAPES, ModelShape

PREFILLS = ((0, 128), (0, 512), (0, 2048), (0, 4096), (0, 8192), (0, 16_384))
"""(cached, computed) tokens of cold prefills."""
BEHIND_A_PREFIX = ((2048, 512), (8192, 512), (8192, 2048), (16_384, 256), (16_384, 2048))
STEPS = (
    *((batch, context) for batch in (1, 8, 32, 64) for context in (512, 4096)),
    *((batch, 16_384) for batch in (1, 8)),
)
"""(sequences, context tokens of each sequence)."""


def measure(shape: ModelShape, device: str, dtype: str, repeats: int, scale: int) -> tuple[ProfileFit, str]:
    """Time a model of this shape; return the fitted figures and a description of the device."""
    from bench.engines.profile.torch_model import TimedModel

    model = TimedModel(shape, device, dtype)
    prefills = []
    for cached, computed in ((a // scale, b // scale) for a, b in (*PREFILLS, *BEHIND_A_PREFIX)):
        if computed and model.fits(1, cached + computed):
            seconds = _median(model.prefill_times(cached, computed, repeats))
            prefills.append(PrefillSample(cached + computed, cached, seconds))
            _say(f"prefill of {computed} behind {cached}: {seconds * 1e3:.2f} ms")
    steps = []
    for batch, context in ((batch, context // scale) for batch, context in STEPS):
        if context and model.fits(batch, context + 1):
            seconds = _median(model.step_times(batch, context, repeats * 4))
            steps.append(StepSample(batch, batch * context, seconds))
            _say(f"step of {batch} × {context}: {seconds * 1e3:.2f} ms")
    return fit_profile(prefills, steps), model.description


def profile_document(fit: ProfileFit, shape: ModelShape, description: str) -> dict[str, Any]:
    """Return the profile as JSON types. Memory sizes depend on the engine, so users of the profile set them."""
    source = (
        f"random weights, {shape.summary}, on {description}, timed by bench/engines/calibrate_torch.py: {fit.summary}"
    )
    memory = {"layers": shape.layers, "kv_bytes_per_token": shape.kv_bytes_per_token}
    return {**fit.figures, **memory, "source": source}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, fit, and write. Return the exit status, 1 if PyTorch or the device is missing."""
    options = _parser().parse_args(argv)
    shape = options.shape
    try:
        fit, description = measure(shape, options.device, options.dtype, options.repeats, options.scale)
    except ModuleNotFoundError as error:
        print(f"calibrate_torch: {error.name} is missing; install PyTorch for this machine", file=sys.stderr)
        return 1
    except (RuntimeError, ValueError) as error:
        print(f"calibrate_torch: {error}", file=sys.stderr)
        return 1
    document = profile_document(fit, shape, description)
    options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    report = {
        "shape": asdict(shape),
        "prefill_errors": fit.prefill_errors,
        "step_errors": fit.step_errors,
        "prefill_mean_error": mean_error(fit.prefill_errors),
        "step_mean_error": mean_error(fit.step_errors),
    }
    options.out.with_suffix(".report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.engines.calibrate_torch", description=__doc__)
    add = parser.add_argument
    add("--shape", type=_shape, default=SHAPES["8b"], help=f"{', '.join(SHAPES)}, or a JSON object of ModelShape")
    add("--device", default="cuda")
    add("--dtype", default="bfloat16")
    add("--repeats", type=int, default=5)
    add("--scale", type=int, default=1, help="divide all lengths by this, for a slow device")
    add("--out", type=Path, required=True, help="profile to write; the report is written next to it")
    return parser


def _shape(text: str) -> ModelShape:
    if text in SHAPES:
        return SHAPES[text]
    try:
        return ModelShape(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {', '.join(SHAPES)} nor a shape: {error}") from error


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
