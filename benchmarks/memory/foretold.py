"""How well two probes foretell memory and samples/s along the ladder: on each recorded table, on each of its lines.

python -m benchmarks.memory.foretold --studies build/memory     (the studies that `show.py` leaves, too)
"""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.memory.show import view
from tuner.errors import StudyError
from tuner.kept.trial import COMPLETE, KeptProbe, KeptTrial
from tuner.probe.metrics import measured
from tuner.replay.recorded import Table
from tuner.running.workbench import open_workbench
from tuner.search.foreseen import foresee
from tuner.study import Space, ladder_of

TABLES = Path(__file__).parents[1] / "tables"
NEAR, FAR = 1, -2
"""Which two rungs are probed: the second smallest and the second largest."""


def trials(table: Table) -> list[KeptTrial]:
    """Return a table's probes as the trials of a study."""
    return [
        KeptTrial(
            state=COMPLETE,
            config=found.result.config,
            values=(1.0,),
            probe=KeptProbe(
                status="ok",
                samples_per_s=found.result.samples_per_s,
                devices=found.result.devices,
                metrics=measured(found.result),
            ),
        )
        for config in table.configs
        if (found := table.find(config)) and found.result.ok
    ]


def probed_of(rungs: list[KeptTrial]) -> list[KeptTrial]:
    """Return the two probes from which a line's other rungs are foretold."""
    return [rungs[NEAR], rungs[FAR]] if len(rungs) > 3 else [rungs[0], rungs[-1]]


def lines(ran: list[KeptTrial], ladder: str) -> Iterator[tuple[list[KeptTrial], list[KeptTrial]]]:
    """Yield, of each line of a table along the ladder, the two probes and the rungs to be foretold."""

    def line(one: KeptTrial) -> str:
        return str(sorted((name, str(value)) for name, value in one.config.items() if name != ladder))

    for _, own in groupby(sorted(ran, key=line), key=line):
        rungs = sorted(own, key=lambda one: float(one.config[ladder]))
        if len(rungs) > 2:
            probed = probed_of(rungs)
            yield probed, [one for one in rungs if one not in probed]


def known(studies: Path | None) -> Iterator[tuple[str, Space, list[tuple[list[KeptTrial], list[KeptTrial]]]]]:
    """Yield the name and the space of each table and study, and its lines; a study's two first probes foretell."""
    for path in sorted(TABLES.glob("*/*.parquet")):
        with suppress(StudyError):  # the tables of kernels have no memory and another format
            table = Table.load(path)
            if ladder := ladder_of(table.space):
                yield f"{path.parent.name}/{path.stem}", table.space, list(lines(trials(table), ladder))
    for file in sorted(studies.glob("**/lasting.yaml")) if studies else ():
        bench = open_workbench(str(file), runs=file.parent / "runs")
        ran = [one for one in view(file.parent / "runs").trials if one.state == COMPLETE]
        yield file.parent.name, bench.space_for(bench.trainer.cases()[0]), [(ran[:2], ran[2:])]


def main() -> None:
    """Print a row for each table and each study of `show.py`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=Path)
    print("| table | lines | foretold | memory: median error | inside 90 % | samples/s: median error | inside 90 % |")
    print("|---|---|---|---|---|---|---|")
    whole: tuple[list[tuple[float, bool]], ...] = ([], [])
    for name, space, found in known(parser.parse_args().studies):
        own: tuple[list[tuple[float, bool]], ...] = ([], [])
        for probed, rest in found:
            for one, expected in zip(rest, foresee(space, probed, [one.config for one in rest]), strict=True):
                memory = expected.memory_share, (one.memory_share_pct or 0.0) / 100
                pairs = memory, (expected.samples_per_s, one.samples_per_s)
                for errors, (interval, true) in zip(own, pairs, strict=True):
                    if interval and true:
                        errors.append((abs(interval.mean / true - 1), interval.low <= true <= interval.high))
        print(f"| {name} | {len(found)} | {sum(len(rest) for _, rest in found)} | {' | '.join(map(cell, own))} |")
        for all_errors, errors in zip(whole, own, strict=True):
            all_errors.extend(errors)
    print(f"| all | | | {' | '.join(map(cell, whole))} |")


def cell(errors: list[tuple[float, bool]]) -> str:
    """Return the median error, and how many of the true values lie inside."""
    held = sum(inside for _, inside in errors)
    return f"{100 * median(error for error, _ in errors):.1f} % | {held} of {len(errors)}" if errors else "- | -"


if __name__ == "__main__":
    main()
