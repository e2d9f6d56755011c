"""Compares what the reference trainer learns in different number formats, after the same samples.

    python -m benchmarks.probes.precision --device cpu
    python -m benchmarks.probes.precision --device cuda:0 --format fp32 --format tf32 --format bf16 --format fp16

For each seed and each format, one policy of deepmimic learns from the same clips, with the same first weights. The
return is the sum of the tracking rewards of an episode of 32 steps, averaged over all environments and over the last
tenth of the iterations. `first` is the return of the first iteration. Seeds are paired, so the difference to fp32 has
the standard error of the mean of the differences.
"""

import platform
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from math import sqrt
from multiprocessing import get_context
from statistics import fmean, stdev
from typing import Annotated

import torch
import typer

from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, RunConfig, default_hidden_units, run_config
from tuner.trainers.reference.methods import Learner, Networks, PolicyLoss, numerics, prepare_process
from tuner.trainers.reference.training import PlainPlayer
from tuner.trainers.reference.world import ClipStream, MotionClips, frames_needed

FORMATS = {
    "fp32": RunConfig(),
    "tf32": RunConfig(tf32=True),
    "bf16": RunConfig(precision="bf16"),
    "fp16": RunConfig(precision="fp16"),
}
EXACT = "fp32"


@dataclass(frozen=True, kw_only=True, slots=True)
class Learnt:
    """The returns of one run."""

    first: float
    last: float


def learn(asked: tuple[str, int], *, device: str, num_envs: int, iterations: int, hidden_units: int) -> Learnt:
    """Train with a format and a seed; return what the first and the last iterations earned."""
    kind, seed = asked
    here, kernels = torch.device(device), FORMATS[kind]
    prepare_process(kernels, here, ranks=1)
    torch.manual_seed(seed)
    clips = ClipStream(
        MotionClips(frames=frames_needed(STEPS_PER_ITERATION), seed=seed),
        num_envs=num_envs,
        rank=0,
        ranks=1,
        device=here,
        num_workers=0,
        prefetch_factor=None,
    )
    agent = run_config({}).agent(hidden_units=hidden_units)
    networks, formats = Networks("deepmimic", agent).to(here), numerics(kernels.precision, here)
    learner = Learner(
        PolicyLoss(networks.policy),
        epochs=agent.update_epochs,
        minibatch=agent.minibatch_of(num_envs),
        wrap=lambda loss: loss,
        formats=formats,
    )
    playing, returns = PlainPlayer(networks, formats), list[float]()
    for _ in range(iterations):
        samples = playing.play(clips.take())
        returns.append(STEPS_PER_ITERATION * samples["tracking"].mean().item())
        learner.update(samples)
    return Learnt(first=returns[0], last=fmean(returns[-max(iterations // 10, 1) :]))


def mean_and_error(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error; the error of a single number is infinite."""
    return fmean(numbers), stdev(numbers) / sqrt(len(numbers)) if len(numbers) > 1 else float("inf")


def lines(learnt: dict[tuple[str, int], Learnt]) -> Iterator[str]:
    """Yield the table."""
    yield "| format | seeds | first return | last return | minus fp32, same seeds | in errors |"
    yield "|---|---|---|---|---|---|"
    for kind in dict.fromkeys(kind for kind, _ in learnt):
        seeds = [seed for one, seed in learnt if one == kind]
        first, _ = mean_and_error([learnt[kind, seed].first for seed in seeds])
        last, error = mean_and_error([learnt[kind, seed].last for seed in seeds])
        apart = ["", ""]
        if kind != EXACT and all((EXACT, seed) in learnt for seed in seeds):
            mean, of_mean = mean_and_error([learnt[kind, seed].last - learnt[EXACT, seed].last for seed in seeds])
            apart = [f"{mean:+.3f} ± {of_mean:.3f}", f"{abs(mean) / of_mean:.1f}"]
        yield f"| {' | '.join((kind, str(len(seeds)), f'{first:.3f}', f'{last:.3f} ± {error:.3f}', *apart))} |"


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda:N")] = "cpu",
    kinds: Annotated[list[str] | None, typer.Option("--format", help="fp32, tf32, bf16 or fp16; repeat")] = None,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    num_envs: Annotated[int, typer.Option(min=1)] = 256,
    iterations: Annotated[int, typer.Option(min=1)] = 60,
    hidden_units: Annotated[int | None, typer.Option(min=1, help="1024 on a GPU, 64 on a CPU")] = None,
    workers: Annotated[int, typer.Option(min=1, help="runs at the same time")] = 2,
) -> None:
    chosen = kinds or [EXACT, "bf16"]
    if unknown := set(chosen) - FORMATS.keys():
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: give {', '.join(FORMATS)}")
    asked = list(product(chosen, range(seeds)))
    width = hidden_units or default_hidden_units(device)
    run = partial(learn, device=device, num_envs=num_envs, iterations=iterations, hidden_units=width)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        learnt: dict[tuple[str, int], Learnt] = {}
        for one, result in zip(asked, pool.map(run, asked), strict=True):
            learnt[one] = result
            print(*one, result, file=sys.stderr, flush=True)
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or "CPU"
    samples = num_envs * STEPS_PER_ITERATION * iterations
    print(f"{datetime.now(UTC):%Y-%m-%d}, {name}, torch {torch.__version__}: {num_envs} environments, ", end="")
    print(f"layers of {width} units, {samples:,} samples in {iterations} iterations\n")
    print(*lines(learnt), sep="\n")


if __name__ == "__main__":
    typer.run(main)
