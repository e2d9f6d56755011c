"""How well two probes foretell memory and samples/s along the ladder: on each recorded table, on each of its lines.

    python -m benchmarks.memory.foretold [--chosen]

The constants of `tuner/search/frontier.py` were chosen on the tables of `CHOSEN`; the others report. Two probes
foretell what the same host makes: where more than an hour lies between the probes of a table, another host went on.
"""

import argparse
import csv
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from statistics import median

from tuner.errors import StudyError
from tuner.export.recorded_table import Table
from tuner.probe.result import DeviceSummary
from tuner.records.trial import COMPLETE, ProbeRecord, TrialRecord
from tuner.search.resource_model import expected_resources
from tuner.study import LADDER, Config, Parameter, Space, ladder_of

TABLES, SEARCHES = Path(__file__).parents[1] / "tables", Path(__file__).with_name("searches.tsv")
CHOSEN = (
    "pi_plus_two_h200/amp_pi_plus",
    "reference_two_cpu_ranks/deepmimic_pi_plus_ppo",
    "search pi_plus_auto_two_h200",
)
NEAR, FAR = 1, -2
"""Which two rungs are probed: the second smallest and the second largest."""
OTHER_HOST = timedelta(hours=1)
H200_MIB = 143771.0
NAMED = ("agent_variant", "update_epochs", "batch_size", "num_workers", "prefetch_factor")

Line = tuple[list[TrialRecord], list[TrialRecord]]
"""The two probes, and the rungs to be foretold."""


def trial(
    config: Config, started_at: str, samples_per_s: float | None, devices: tuple[DeviceSummary, ...]
) -> TrialRecord:
    """Return a probe as the trial of a study."""
    probe = ProbeRecord(status="ok", started_at=started_at, samples_per_s=samples_per_s, devices=devices)
    return TrialRecord(state=COMPLETE, config=config, values=(1.0,), probe=probe)


def trials(table: Table) -> list[TrialRecord]:
    """Return a table's probes as the trials of a study."""
    ran = [found.result for config in table.configs if (found := table.find(config)) and found.result.ok]
    return [trial(one.config, one.started_at, one.samples_per_s, one.devices) for one in ran]


def searched() -> dict[str, list[TrialRecord]]:
    """Return the trials of each search on H200s, by search and case."""
    found: dict[str, list[TrialRecord]] = {}
    for row in csv.DictReader(SEARCHES.open(), delimiter="\t"):
        config = {LADDER: int(row[LADDER]), **{name: row[name] for name in NAMED if row[name]}}
        used = DeviceSummary(
            device="cuda",
            source="nvml",
            util_mean_pct=None,
            mem_peak_mib=float(row["mem_peak_mib"]),
            mem_total_mib=H200_MIB,
        )
        one = trial(config, row["started_at"], float(row["samples_per_s"]), (used,))
        found.setdefault(f"search {row['search']}/{row['case']}", []).append(one)
    return found


def hosts(ran: list[TrialRecord]) -> Iterator[list[TrialRecord]]:
    """Yield the trials of each host."""
    own: list[TrialRecord] = []
    for one in sorted(ran, key=_started):
        if own and _started(one) - _started(own[-1]) > OTHER_HOST:
            yield own
            own = []
        own.append(one)
    yield own


def _started(one: TrialRecord) -> datetime:
    return datetime.fromisoformat(str(one.probe.started_at))


def lines(ran: list[TrialRecord], ladder: str) -> Iterator[Line]:
    """Yield each line along the ladder that one host measured."""

    def line(one: TrialRecord) -> str:
        return str(sorted((name, str(value)) for name, value in one.config.items() if name != ladder))

    for here in hosts(ran):
        for _, own in groupby(sorted(here, key=line), key=line):
            newest = {float(one.config[ladder]): one for one in own}
            rungs = [newest[rung] for rung in sorted(newest)]
            if len(rungs) > 2:
                probed = [rungs[NEAR], rungs[FAR]] if len(rungs) > 3 else [rungs[0], rungs[-1]]
                yield probed, [one for one in rungs if one not in probed]


def known() -> Iterator[tuple[str, Space, list[Line]]]:
    """Yield the name and the space of each table and each search that left a table, and its lines."""
    for path in sorted(TABLES.glob("*/*.parquet")):
        with suppress(StudyError):  # the tables of kernels have no memory and another format
            table = Table.load(path)
            if ladder := ladder_of(table.space):
                yield f"{path.parent.name}/{path.stem}", table.space, list(lines(trials(table), ladder))
    for name, ran in searched().items():
        rungs = sorted({int(str(one.config[LADDER])) for one in ran})
        if len(rungs) > 2 and (found := list(lines(ran, LADDER))):
            yield name, Space((Parameter(name=LADDER, values=tuple(rungs)),)), found


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chosen", action="store_true", help="only the tables on which the constants were chosen")
    asked = parser.parse_args()
    print("| table | foretold | memory: median error | inside 90 % | samples/s: median error | inside 90 % |")
    print("|---|---|---|---|---|---|")
    whole: tuple[list[tuple[float, bool]], ...] = ([], [])
    for name, space, found in known():
        if name.startswith(CHOSEN) != asked.chosen:
            continue
        own: tuple[list[tuple[float, bool]], ...] = ([], [])
        for probed, rest in found:
            for one, expected in zip(
                rest, expected_resources(space, probed, [one.config for one in rest]), strict=True
            ):
                memory = expected.memory_share, (one.memory_share_pct or 0.0) / 100
                pairs = memory, (expected.samples_per_s, one.samples_per_s)
                for errors, (interval, true) in zip(own, pairs, strict=True):
                    if interval and true:
                        errors.append((abs(interval.mean / true - 1), interval.low <= true <= interval.high))
        print(f"| {name} | {sum(len(rest) for _, rest in found)} | {' | '.join(map(cell, own))} |")
        for all_errors, errors in zip(whole, own, strict=True):
            all_errors.extend(errors)
    print(f"| all | {len(whole[1])} | {' | '.join(map(cell, whole))} |")


def cell(errors: list[tuple[float, bool]]) -> str:
    """Return the median error, and how many of the true values lie inside."""
    held = sum(inside for _, inside in errors)
    return f"{100 * median(error for error, _ in errors):.1f} % | {held} of {len(errors)}" if errors else "- | -"


if __name__ == "__main__":
    main()
