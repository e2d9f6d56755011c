"""Runs the procedure that `tuner` replaces: for each variant the ladder from the top down to the first success.

    python -m benchmarks.probes.predecessor --study pi_plus --devices 0,1 --ladder 65536,32768,16384

The procedure tries `hiutil` first, then `default`. Parameters other than rung and variant have the study's first value.
A probe is a cold launch of the trainer's plain command. It ends with its eighth iteration, which is a success, when the
command exits, or after 420 s.

The procedure uses no knowledge of `tuner`. It leaves out no rung that the trainer or the memory cannot take. A run that
hangs, for example because its ranks wait for a dead one, costs 420 s. Utilisation is measured by the old rule (once a
second, the first 20 left out) and, in the same run, over the window. On CPU ranks the two may differ in kind.

Three things favour the predecessor here:

- The predecessor let a trainer that was asked for eight iterations end by itself. Here the run ends at its eighth mark,
  without its last test rollout (8 to 12 s of MimicKit) and without writing files. Both cost seconds and lower the old
  value.
- The wait for idle cards between probes does not count.
- `hiutil` changes the epochs in both of MimicKit's agent schemas. The predecessor changed them in the older one only.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.probes.old_rule import Attempt, limited, procedure, winner
from benchmarks.probes.probing import Bench, Listening
from tuner.devices.found import describe_machine
from tuner.errors import DeviceError
from tuner.probe.metrics import error, value
from tuner.probe.protocols import never
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.study.cases import select
from tuner.study.space import DEFAULT, LADDER, VARIANT, Config, Space

UTILISATION, RATE = "min_avg_util", "samples_per_s"
HEADS = (VARIANT, LADDER, "outcome", "s", "device-s", "old rule, %", "window, %", "±", "samples/s", "peak, MiB")


def for_real(bench: Bench, source: Listening) -> Callable[[Config], Attempt]:
    """Return a function that probes by the old rule. It raises DeviceError if the cards do not become free."""
    limits = limited(bench.limits)

    def attempt(config: Config) -> Attempt:
        source.begin()
        result = bench.probe(config, limits=limits, stop=never)
        if result.failure and not result.launched:
            raise DeviceError(result.failure.detail)
        return Attempt(result=result, samples=source.samples, devices=len(source.devices))

    return attempt


def rungs_from(ladder: str | None, written: Space) -> list[int]:
    """Return the rungs of the option, or else those in the study file. Raises typer.BadParameter."""
    if ladder is None and written.auto_bounds:
        raise typer.BadParameter("this study makes its rungs from probes; give them with --ladder 1024,768,512")
    try:
        rungs = [int(rung) for rung in (written.values(LADDER) if ladder is None else ladder.split(","))]
    except ValueError as wrong:
        raise typer.BadParameter(f"--ladder takes rungs such as 1024,768,512, not {ladder!r}") from wrong
    if not rungs or min(rungs) < 1:
        raise typer.BadParameter(f"rungs are whole numbers from 1 up, not {ladder}; give them with --ladder")
    return rungs


def row(attempt: Attempt) -> list[str]:
    config, result = attempt.result.config, attempt.result
    return [
        *(str(config.get(name, "")) for name in (VARIANT, LADDER)),
        attempt.outcome,
        *(_shown(seconds, 0) for seconds in (result.total_s, attempt.device_s)),
        _shown(attempt.reading_pct, 1),
        *(_shown(of(result, UTILISATION), 2) for of in (value, error)),
        *(_shown(number, 0) for number in (value(result, RATE), attempt.peak_mib)),
    ]


def conclusion(attempts: Sequence[Attempt]) -> str:
    """Return a sentence about the procedure's choice, the value of that choice over the window, and the total cost."""
    spent = f"probes: {len(attempts)}, device-seconds: {sum(one.device_s for one in attempts):,.0f}"
    best = winner(attempts)
    if best is None:
        return f"no winner; {spent}"
    variant, rung, _, _, _, old_pct, window_pct, error_pct, *_ = row(best)
    return (
        f"winner: {variant} {rung}, {old_pct or '?'} % by the old rule, "
        f"{window_pct or '?'} ± {error_pct or '?'} % in the window; {spent}"
    )


def _shown(number: float | None, digits: int) -> str:
    return "" if number is None else f"{number:,.{digits}f}"


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    devices: Annotated[str | None, typer.Option()] = None,
    ladder: Annotated[str | None, typer.Option(help="rungs: 1024,768,512; else the study's own")] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="once for each; else all")] = None,
) -> None:
    opened = open_workbench(study, devices=devices)
    source = Listening(opened.source)
    opened = replace(opened, source=source)
    (known,) = select(opened.trainer.cases(), [case])
    space, rungs = opened.space_for(known), rungs_from(ladder, opened.spec_for(known).build_space())
    tried = variants or sorted(space.values(VARIANT), key=lambda variant: variant == DEFAULT) or [None]
    console = Console(width=180)
    console.print(describe_machine(source))
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{opened.spec.name}/{known.name}: the predecessor's procedure")
    attempts: list[Attempt] = []
    with TemporaryDirectory() as folder, closing(open_prober(opened)) as prober:
        bench = Bench(opened, known, prober, Path(folder).resolve())
        for attempt in procedure(space, tried, rungs, for_real(bench, source)):
            attempts.append(attempt)
            table.add_row(*row(attempt))
            why = attempt.result.failure.detail if attempt.result.failure else ""
            print(*row(attempt), why, sep=" | ", flush=True)  # as they come: a machine may be taken away
    console.print(table)
    console.print(conclusion(attempts))


if __name__ == "__main__":
    typer.run(main)
