"""How well two probes foretell memory and samples/s along the ladder: on each recorded table, on each of its lines.

python -m benchmarks.memory.foretold
"""

from itertools import groupby
from pathlib import Path
from statistics import median

from tuner.errors import StudyError
from tuner.kept.trial import COMPLETE, KeptProbe, KeptTrial
from tuner.probe.metrics import measured
from tuner.replay.recorded import Table
from tuner.search.foreseen import foresee
from tuner.study.space import ladder_of

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


def main() -> None:
    """Print a row for each table."""
    print("| table | lines | configs | memory: median error | inside 90 % | samples/s: median error | inside 90 % |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(TABLES.glob("*/*.parquet")):
        try:
            table = Table.load(path)
        except StudyError:  # the tables of kernels have no memory and another format
            continue
        ladder, ran = ladder_of(table.space), trials(table)
        if ladder is None:
            continue

        def line(one: KeptTrial, ladder: str | None = ladder) -> str:
            return str(sorted((name, str(value)) for name, value in one.config.items() if name != ladder))

        errors: dict[str, list[float]] = {"memory": [], "speed": []}
        inside: dict[str, list[bool]] = {"memory": [], "speed": []}
        lines = 0
        for _, own in groupby(sorted(ran, key=line), key=line):
            rungs = sorted(own, key=lambda one, ladder=ladder: float(one.config[ladder]))
            if len(rungs) < 4:
                continue
            lines += 1
            probed = [rungs[NEAR], rungs[FAR]]
            rest = [one for one in rungs if one not in probed]
            for one, found in zip(rest, foresee(table.space, probed, [one.config for one in rest]), strict=True):
                true = {"memory": (one.memory_share_pct or 0.0) / 100.0, "speed": one.samples_per_s}
                for name, interval in (("memory", found.memory_share), ("speed", found.samples_per_s)):
                    if interval and true[name]:
                        errors[name].append(abs(interval.mean / true[name] - 1.0))
                        inside[name].append(interval.low <= true[name] <= interval.high)
        cells = [
            f"{100 * median(errors[name]):.1f} % | {sum(inside[name])} of {len(inside[name])}"
            if errors[name]
            else "- | -"
            for name in ("memory", "speed")
        ]
        print(f"| {path.parent.name}/{path.stem} | {lines} | {len(ran)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
