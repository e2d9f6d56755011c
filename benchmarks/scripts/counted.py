"""Counts inside twenty training scripts, and compares with what their side files say that they have trained.

    python -m benchmarks.scripts.counted --python PYTHON [--alone] [--only NAME …] > page.md    (a minute a script)

`--python` is a Python that has the packages of `requirements.txt`. Each command of `commands` runs in a folder of its
own below `--work`, without `tuner` around it: only the folder of what counts comes first on PYTHONPATH. The samples or
environment steps per second are those between the first mark after `SETTLE_S` and the last one, and the truth is that
of the same span. With `--alone`, it is `tuner optimize --yes --n-trials 1 -- COMMAND` that runs, and nobody is asked:
the speed that each probe tells is compared with the truth of its window, and where nothing could vary, what was
counted while the command was watched. `--hours` searches for longer. A row is written as soon as it is known, and the
same command goes on with the others. Several may share a `--work` if `--only` gives each its own.
"""

import argparse
import csv
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.scripts.commands import COMMANDS, LIMIT_S, ROOT, SETTLE_S, TOKENS, Place, plain_run, prepared, truth_of
from benchmarks.scripts.judged import CLOSE_PCT, Told, Truth, off_pct, reason, verdict
from tuner.count import Merger
from tuner.devices.found import describe_machine, open_devices
from tuner.probe.series import read_series

INSIDE = ROOT / "tuner" / "count" / "inside"
"""What comes first on PYTHONPATH."""
PAUSES = 0.02
"""Where more than this share of a window went to evaluation and checkpoints, the speed between them is told."""
_TOLD = re.compile(r"^your command: +(?P<value>[\d.,]+)(?: ± (?P<error>[\d.,]+))? samples/s", re.MULTILINE)
_SOURCE = re.compile(r"^ +samples: (?P<source>.*)$", re.MULTILINE)
_WRONG = re.compile("WRONG")
LEAST_ROLLOUTS = 10
"""Over fewer rollouts, the phases at both ends say more than the counts."""
LEAST_MARKS = 3
"""A speed over fewer marks is not compared."""
ROLLOUTS = ("RLlib", "rsl_rl, Hydra", "SB3", "CleanRL")
"""Scripts whose side file has a line for each rollout; they run `MORE` times as long."""
MORE = 3.0


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
    verdict: str
    counted_per_s: float | None = None
    error_per_s: float | None = None
    true_per_s: float | None = None
    off_pct: float | None = None
    seconds: float | None = None
    """The span over which both are compared."""
    why: str = ""
    """Why nothing is counted."""
    witness: str = ""
    minutes: float | None = None
    probes: int = 0
    """The measured probes of a search."""
    most_off_pct: float | None = None
    """The error of the probe that is furthest from its truth."""


def ready(name: str, args: argparse.Namespace) -> tuple[CountedPlace, list[str]]:
    """Return the place of a script, its folder emptied but for the script, and the command."""
    folder = (args.work / name.replace(", ", "_").replace(" ", "_")).absolute()
    place = CountedPlace(folder=folder, python=args.python.absolute())
    prepared(place, name)
    place.count.mkdir()
    return place, shlex.split(COMMANDS[name])


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
        marks += merger.new_marks()
    return merger, marks


def compared(name: str, args: argparse.Namespace) -> Row:
    """Run a script, and compare what was counted inside with its side file."""
    place, command = ready(name, args)
    side = place.folder / "plain.tsv"
    plain_run(command, place, side, SETTLE_S + args.seconds * (MORE if name in ROLLOUTS else 1.0))
    merger, marks = merged(place.count)
    truth = truth_of(side)
    marks = within([mark for mark in marks if mark["t_s"] >= marks[0]["t_s"] + SETTLE_S], truth)
    if len(marks) < LEAST_MARKS:
        off = [why for process in merger.processes.values() for why in process.off]
        trains = "too few steps were told" if merger.trainers else "no optimizer of torch has stepped"
        true = None if truth is None else true_rate(truth, name, truth.first_s + SETTLE_S, truth.last_s)
        why = "; ".join([merger.why_uncounted or trains, *off])
        return Row(name=name, verdict="not counted", true_per_s=true, why=why)
    begin, end = marks[0], marks[-1]
    seconds = end["t_s"] - begin["t_s"]
    counted = (end["samples"] - begin["samples"]) / seconds
    true = None if truth is None else true_rate(truth, name, begin["t_s"], end["t_s"])
    off = 100 * (counted / true - 1) if true else None
    training = merger.training()
    return Row(
        name=name,
        verdict="truth missing" if off is None else "right" if abs(off) <= CLOSE_PCT else "WRONG IN SILENCE",
        counted_per_s=counted,
        true_per_s=true,
        off_pct=off,
        seconds=seconds,
        why=merger.why_uncounted or "",
        witness=training.witness if training else "",
    )


def within(marks: Sequence[dict[str, Any]], truth: Truth | None) -> list[dict[str, Any]]:
    """Return the marks in the span of the side file. It ends before them where a script is ended after a rollout."""
    return [mark for mark in marks if truth and truth.first_s <= mark["t_s"] <= truth.last_s]


def alone(name: str, args: argparse.Namespace) -> Row:
    """Let `tuner optimize` search for a script without a person, and compare all that it tells with the side file."""
    place, command = ready(name, args)
    plain = Place(folder=place.folder, python=place.python)
    side, began_s = plain.side("alone"), time.monotonic()
    limits = ("--n-trials", "1") if args.hours is None else ("--hours", str(args.hours))
    words = ("optimize", "--yes", *limits, "--python", str(place.python), "--", *command)
    pid, code, shown = plain.tuner(side, *words, limit_s=args.limit_s)
    minutes = (time.monotonic() - began_s) / 60
    found, source, truth = _TOLD.search(shown), _SOURCE.search(shown), truth_of(side)
    numbers = [float(found[part].replace(",", "")) if found and found[part] else None for part in ("value", "error")]
    told = Told(value=numbers[0], error=numbers[1], why="" if found else reason(shown))
    readings = list(_readings(place.folder, truth, pid, name)) if truth else []
    own = [reading for reading in readings if reading.config == readings[0].config]
    true = fmean(reading.true_per_s for reading in own) if own else None
    seconds = sum(reading.seconds for reading in own) or None
    _, marks = merged(next((place.folder / "runs").glob("*/init/counts"), place.count))
    marks = within(marks, truth)
    if truth and not readings and not found and len(marks) >= LEAST_MARKS:  # nothing may vary: it was watched alone
        begin_s, seconds = marks[0]["t_s"], marks[-1]["t_s"] - marks[0]["t_s"]
        told = Told(value=(marks[-1]["samples"] - marks[0]["samples"]) / seconds, error=None, why=told.why)
        true = true_rate(truth, name, begin_s, begin_s + seconds)
    silent = "refused, with the reason" if code else "unknown, and said so"
    verdicts = [verdict(told, true, TOKENS.get(name, 0)) if told.value is not None else silent]
    verdicts += [reading.verdict for reading in readings]
    is_short = name in ROLLOUTS and not found and len(marks) < LEAST_ROLLOUTS
    return Row(
        name=name,
        verdict="too few rollouts" if is_short else next(filter(_WRONG.match, verdicts), verdicts[0]),
        counted_per_s=told.value,
        error_per_s=told.error,
        true_per_s=true,
        off_pct=off_pct(told, true),
        seconds=seconds,
        why=told.why,
        witness=source["source"] if source else "",
        minutes=minutes,
        probes=len(readings),
        most_off_pct=max((reading.off_pct for reading in readings), key=abs, default=None),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one probe of a search told, and what is true of its window."""

    config: str
    true_per_s: float
    off_pct: float
    seconds: float
    verdict: str


def _readings(folder: Path, truth: Truth, pid: int, name: str) -> Iterator[Reading]:
    """Yield the measured probes of a search by the process `pid`, oldest first."""
    starts = [truth.began_s[child] for child, parent in truth.parents.items() if parent == pid]
    since_epoch_s = time.time() - time.monotonic()
    for table in folder.glob("runs/*/trials.tsv"):
        with table.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, dialect="excel-tab"))
        names = list(rows[0])[list(rows[0]).index("value") + 1 : list(rows[0]).index("iterations")] if rows else []
        for row in rows:
            series = read_series(table.parent / row["out_dir"]) if row["samples_per_s"] and row["out_dir"] else None
            if row["status"] != "ok" or series is None or series.window_s is None or not starts:
                continue
            at_s = datetime.fromisoformat(row["started_at"]).timestamp() - since_epoch_s
            started_s = min(starts, key=lambda start_s, at_s=at_s: abs(start_s - at_s))
            begin_s, end_s = (started_s + t_s for t_s in series.window_s)
            error = float(row["samples_per_s_se"]) if row["samples_per_s_se"] else None
            told = Told(value=float(row["samples_per_s"]), error=error, why="")
            ways = (False, True) if truth.share_of_other(begin_s, end_s) > PAUSES else (False,)
            rates = [rate for between in ways if (rate := true_rate(truth, name, begin_s, end_s, between=between))]
            if rates:
                true = min(rates, key=lambda rate, told=told: abs(off_pct(told, rate) or 0.0))
                yield Reading(
                    config=" ".join(f"{key}={row[key]}" for key in names),
                    true_per_s=true,
                    off_pct=off_pct(told, true) or 0.0,
                    seconds=end_s - begin_s,
                    verdict=verdict(told, true, TOKENS.get(name, 0)),
                )


def true_rate(truth: Truth, name: str, begin_s: float, end_s: float, *, between: bool = False) -> float | None:
    """Return what a side file says of a span; None where nothing was trained in it.

    Args:
        truth: the side file.
        name: the script. Between two rollouts of some, the steps are taken to be spread evenly.
        begin_s: when the span begins.
        end_s: when it ends.
        between: whether the speed is that between evaluations and checkpoints.
    """
    if name in ROLLOUTS:
        grown = (_spread(rows, end_s) - _spread(rows, begin_s) for rows in truth.samples.values())
        return sum(grown) / (end_s - begin_s) or None
    try:
        return truth.training_rate(begin_s, end_s) if between else truth.rate(begin_s, end_s)
    except ValueError:
        return None


def _spread(rows: Sequence[tuple[float, int]], at_s: float) -> float:
    """Return the samples by a moment, interpolated between the rows."""
    for (before_s, before), (after_s, after) in pairwise(rows):
        if before_s <= at_s <= after_s:
            return before + (after - before) * (at_s - before_s) / (after_s - before_s)
    return float(rows[0][1] if at_s < rows[0][0] else rows[-1][1])


def read_rows(table: Path) -> dict[str, Row]:
    """Return the newest row of each script; several of these programs may append to one table."""
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    return {row.name: row for row in (Row(**json.loads(line)) for line in lines)}


def page(rows: list[Row]) -> str:
    """Return the rows as a page."""
    machine = describe_machine(open_devices("cpu:1"))
    counts = {said: sum(row.verdict == said for row in rows) for said in sorted({row.verdict for row in rows})}
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, no GPU; "
            f"load {os.getloadavg()[0]:.0f}.",
            "",
            f"Of {len(rows)} scripts: {', '.join(f'{count} {said}' for said, count in counts.items())}.",
            "",
            "| script | told, 1/s | truth, 1/s | error, % | over, s | probes | most off, % | minutes | verdict "
            "| why nothing is told | by |",
            "|---" * 11 + "|",
            *map(_line, rows),
        ]
    )


def _line(row: Row) -> str:
    cells = (
        row.name,
        _shown(row.counted_per_s, ",.1f") + (f" ± {row.error_per_s:,.1f}" if row.error_per_s else ""),
        _shown(row.true_per_s, ",.1f"),
        _shown(row.off_pct, "+.2f"),
        _shown(row.seconds, ".0f"),
        str(row.probes or ""),
        _shown(row.most_off_pct, "+.2f"),
        _shown(row.minutes, ".1f"),
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
    parser.add_argument("--only", action="append", choices=COMMANDS, help="one script; repeat for more")
    parser.add_argument(
        "--alone", action="store_true", help="let `tuner optimize --yes` tell the speed, and ask nobody"
    )
    parser.add_argument("--hours", type=float, help="the time of each search with --alone, in place of one probe")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="the longest search with --alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="the longest span that is compared")
    parser.add_argument("--work", type=Path, default=Path("runs/counted"), help="the folder of all scripts")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = args.work / ("alone.jsonl" if args.alone else "rows.jsonl")
    for name in args.only or [name for name in COMMANDS if name not in read_rows(table)]:
        row = alone(name, args) if args.alone else compared(name, args)
        with table.open("a", encoding="utf-8") as lines:
            lines.write(f"{json.dumps(asdict(row))}\n")
        print(*asdict(row).values(), sep=" | ", file=sys.stderr, flush=True)
    rows = read_rows(table)
    print(page([rows[name] for name in COMMANDS if name in rows]))


if __name__ == "__main__":
    main()
