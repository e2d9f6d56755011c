"""Counts inside fifty-five training scripts, and compares with what their side files say that they have trained.

    python -m benchmarks.scripts.counted --python PYTHON [--only NAME] > page.md      (about half a minute a script)

`--python` is a Python that has the packages of `requirements.txt`. Each command of `trial` and each script of `tricky`
runs in a folder of its own below `--work`, without `tuner` around it: only the folder of what counts comes first on
PYTHONPATH. The samples or environment steps per second are those between the first mark after `SETTLE_S` and the last
one, and the truth is that of the same span. A row is written as soon as it is known; the same command goes on with the
others.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.scripts.judged import CLOSE_PCT
from benchmarks.scripts.sceptic import TRICKY, head
from benchmarks.scripts.trial import COMMANDS, HERE, ROOT, SETTLE_S, Place, plain_run, prepared, truth_of
from tuner.count import Merger
from tuner.devices.found import describe_machine, open_devices

INSIDE = ROOT / "tuner" / "count" / "inside"
"""What comes first on PYTHONPATH."""
LEAST_MARKS = 3
"""A speed over fewer marks is not compared."""
ROLLOUTS = ("RLlib", "rsl_rl, Hydra", "SB3", "CleanRL")
"""Scripts whose side file has a line for each rollout; they run `MORE` times as long."""
MORE = 3.0
TRICKY_NAMES = sorted(path.stem for path in TRICKY.glob("*.py") if path.stem != "tools")
NAMES = (*COMMANDS, *TRICKY_NAMES)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPlace(Place):
    """Where a script is counted."""

    def environ(self, truth: Path) -> dict[str, str]:
        """Return the environment of a command, with what counts inside it."""
        path = os.pathsep.join(filter(None, [str(INSIDE), os.environ.get("PYTHONPATH")]))
        return Place.environ(self, truth) | {"PYTHONPATH": path, "TUNER_COUNT": str(self.count)}

    @property
    def count(self) -> Path:
        """The folder of what the processes tell."""
        return self.folder / "count"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one script has shown; a number that nobody knows is None."""

    name: str
    counted_per_s: float | None = None
    true_per_s: float | None = None
    off_pct: float | None = None
    seconds: float | None = None
    """The span over which both are compared."""
    why: str = ""
    """Why nothing is counted."""
    witness: str = ""

    @property
    def verdict(self) -> str:
        """Whether what was counted is right."""
        if self.counted_per_s is None:
            return "not counted"
        if self.off_pct is None:
            return "counted, but the truth is missing"
        return "right" if abs(self.off_pct) <= CLOSE_PCT else "WRONG IN SILENCE"


def ready(name: str, args: argparse.Namespace) -> tuple[CountedPlace, list[str]]:
    """Return the place of a script, its folder emptied but for the script, and the command."""
    folder = (args.work / name.replace(", ", "_").replace(" ", "_")).absolute()
    place = CountedPlace(folder=folder, python=args.python.absolute())
    if name in COMMANDS:
        prepared(place, name)
        command = shlex.split(COMMANDS[name])
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in (TRICKY / f"{name}.py", TRICKY / "tools.py", HERE / "truth_file.py"):
            shutil.copy(file, folder)
        command = ["python", f"{name}.py", *shlex.split(head(name)["own"])]
    place.count.mkdir()
    return place, command


def merged(folder: Path) -> tuple[Merger, list[dict[str, Any]]]:
    """Return what all processes have told, by time, and the marks. A line that is not whole is left out."""
    records = [
        (record["t_s"], file.stem, record)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines(keepends=True)
        if line.endswith("\n") and isinstance(record := json.loads(line), dict)
    ]
    merger = Merger()
    marks: list[dict[str, Any]] = []
    for _, process, record in sorted(records, key=lambda told: told[0]):
        merger.feed(process, record)
        marks += merger.marks()
    return merger, marks


def compared(name: str, args: argparse.Namespace) -> Row:
    """Run a script, and compare what was counted inside with its side file."""
    place, command = ready(name, args)
    side = place.folder / "plain.tsv"
    plain_run(command, place, side, SETTLE_S + args.seconds * (MORE if name in ROLLOUTS else 1.0))
    merger, marks = merged(place.count)
    truth = truth_of(side)
    marks = [mark for mark in marks if mark["t_s"] >= marks[0]["t_s"] + SETTLE_S]
    if len(marks) < LEAST_MARKS:
        off = [why for process in merger.processes.values() for why in process.off]
        trains = "too few steps were told" if merger.trainers else "no optimizer of torch has stepped"
        true = None if truth is None else _rate(truth, truth.first_s + SETTLE_S, truth.last_s)
        return Row(name=name, true_per_s=true, why="; ".join([merger.why or trains, *off]))
    begin, end = marks[0], marks[-1]
    seconds = end["t_s"] - begin["t_s"]
    counted = (end["samples"] - begin["samples"]) / seconds
    true = None if truth is None else _rate(truth, begin["t_s"], end["t_s"])
    training = merger.training()
    return Row(
        name=name,
        counted_per_s=counted,
        true_per_s=true,
        off_pct=100 * (counted / true - 1) if true else None,
        seconds=seconds,
        why=merger.why or "",
        witness=training.witness if training else "",
    )


def _rate(truth: Any, begin_s: float, end_s: float) -> float | None:
    try:
        return truth.rate(begin_s, end_s)
    except ValueError:
        return None


def page(rows: list[Row]) -> str:
    """Return the rows as a page."""
    machine = describe_machine(open_devices("cpu:1"))
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in sorted({row.verdict for row in rows})}
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, no GPU; "
            f"load {os.getloadavg()[0]:.0f}.",
            "",
            f"Of {len(rows)} scripts: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}.",
            "",
            "| script | counted inside, 1/s | truth, 1/s | error, % | over, s | verdict | why not counted | witness |",
            "|---|---|---|---|---|---|---|---|",
            *map(_line, rows),
        ]
    )


def _line(row: Row) -> str:
    cells = (
        row.name,
        _shown(row.counted_per_s, ",.1f"),
        _shown(row.true_per_s, ",.1f"),
        _shown(row.off_pct, "+.2f"),
        _shown(row.seconds, ".0f"),
        row.verdict,
        row.why,
        row.witness,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _shown(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=NAMES, help="one script; repeat for more")
    parser.add_argument("--seconds", type=float, default=20.0, help="the longest span that is compared")
    parser.add_argument("--work", type=Path, default=Path("runs/counted"), help="the folder of all scripts")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = args.work / "rows.json"
    rows: dict[str, Any] = json.loads(table.read_text()) if table.exists() else {}
    for name in args.only or [name for name in NAMES if name not in rows]:
        row = compared(name, args)
        rows[name] = asdict(row)
        table.write_text(json.dumps(rows, indent=1))
        print(*asdict(row).values(), row.verdict, sep=" | ", file=sys.stderr, flush=True)
    print(page([Row(**rows[name]) for name in NAMES if name in rows]))


if __name__ == "__main__":
    main()
