"""Repeats every fault with real processes: how it is named, how soon, and whether anything is left behind.

    python -m benchmarks.probes.faults [--times 20] [--only killed_rank] [--flood-mib 1024]

Times are scaled: an iteration takes 20 ms, and the limits of the probe are shorter by the same factor. The script exits
with 1 on any deviation: a wrong name, a failed probe with `ok`, a healthy trainer that was ended, or a process or file
that is left.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.support.tests_faulty.scenarios import OK, SCENARIOS
from tests.support.tests_faulty.suite import Outcome, probe
from tuner.probe.units import BYTES_PER_MIB

FLOOD = "flood_without_newline"
FLOOD_MIB = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", choices=SCENARIOS, help="this fault alone")
    parser.add_argument("--flood-mib", type=int, default=1024, help="of the last flood; the others are short")
    options = parser.parse_args()
    faults = [options.only] if options.only else list(SCENARIOS)
    table = Table("fault", "expected", "got", "median s to the name", "left behind", box=box.MARKDOWN)
    deviations: list[str] = []
    probe_once("none", FLOOD_MIB)  # what this process opens but once is opened now
    for fault in track(faults, transient=True):
        sizes_mib = [FLOOD_MIB] * (options.times - 1) + [options.flood_mib if fault == FLOOD else FLOOD_MIB]
        outcomes = [probe_once(fault, size_mib) for size_mib in sizes_mib]
        table.add_row(*row(fault, outcomes))
        deviations += [f"{fault}: {text}" for outcome in outcomes for text in outcome.deviations(SCENARIOS[fault])]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print("\n".join(deviations) or f"no deviation in {len(faults) * options.times} probes", markup=False)
    sys.exit(bool(deviations))


def probe_once(fault: str, flood_mib: int) -> Outcome:
    with TemporaryDirectory() as folder:
        return probe(fault, Path(folder) / "out", flood_bytes=flood_mib * BYTES_PER_MIB)


def row(fault: str, outcomes: list[Outcome]) -> list[str]:
    expected = SCENARIOS[fault].expected
    got = Counter(outcome.got for outcome in outcomes)
    named_s = [outcome.named_s for outcome in outcomes if outcome.named_s is not None and expected != OK]
    left = sum(len(outcome.left) for outcome in outcomes)
    files = sum(max(0, outcome.open_files) for outcome in outcomes)
    return [
        fault,
        expected,
        ", ".join(f"{count} {name}" for name, count in got.most_common()),
        f"{median(named_s):.2f}" if named_s else "",
        "nothing" if not left and not files else f"{left} processes, {files} files",
    ]


if __name__ == "__main__":
    main()
