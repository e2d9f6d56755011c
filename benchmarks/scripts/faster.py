"""Searches each of the twenty scripts, runs the user's command and the best in turn, and compares their side files.

    python -m benchmarks.scripts.faster --python PYTHON [--only NAME] > page.md

`tuner init` watches the command. Where the study shows a line on samples, it is taken, as the script's author would
answer the one question. `tuner optimize` searches for three minutes. Then both commands run without `tuner`, three
times each, in turn. Where the user's command stays the best, nothing is claimed, and nothing runs. A row is written as
soon as it is known; the same command goes on with the scripts that have none.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.scripts.commands import ANSWERS, COMMANDS, SECONDS, Place, place_of, plain_rate, prepared
from benchmarks.scripts.judged import hints, reason
from tuner.devices.found import describe_machine, open_devices
from tuner.export import StudyReader, connect, in_words
from tuner.search.standing import Standing

ROUNDS = 3
"""The plain runs of each command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search ended with."""

    objective: str
    changed: str
    """The parameters in which the best differs from the user's command; empty where the command stays."""
    told: tuple[str, str]
    """The samples/s that the study has of the own command and of the best, with their standard errors."""


def answered(name: str, place: Place) -> str | None:
    """Let `tuner init` write the study, and answer its question; return why this was refused, None where it was not."""
    typed = shlex.split(COMMANDS[name])
    words = ("--seconds", SECONDS, "--python", str(place.python), "--name", "study", "--", *typed)
    _, code, shown = place.tuner(place.folder / "init.tsv", "init", *words)
    if code:
        return reason(shown)
    file = place.folder / "studies/study.yaml"
    for text in hints(file.read_text(), ANSWERS.get(name, "a batch of each rank")):
        file.write_text(text)
    return None


def searched(place: Place, hours: float, trials: int) -> Found | str:
    """Search, and write the best command to `best.sh`; return why there is no best where there is none."""
    limits = ("--hours", str(hours), "--n-trials", str(trials), "--quiet")
    place.tuner(place.folder / "optimize.tsv", "optimize", "--study", "study", *limits)
    _, code, best = place.tuner(place.folder / "plan.tsv", "plan", "--study", "study", "--best")
    if code:
        return "no probe measured a config in this time"
    (place.folder / "best.sh").write_text(best)
    database = f"sqlite:///{place.folder}/runs/study/study.db"
    (case,) = StudyReader(connect(database), "study").cases
    first, default = case.best, case.default
    if first is None:
        return "no config may be the best"
    own = default.config if default else {}
    changed = {key: value for key, value in first.config.items() if own.get(key) != value} if default else first.config
    return Found(objective=case.objective, changed=in_words(changed), told=(_told(default), _told(first)))


def _told(one: Standing | None) -> str:
    if one is None or one.samples_per_s is None:
        return ""
    return f"{one.samples_per_s:.1f}" + (f" ± {one.speed_error:.1f}" if one.speed_error else "")


def in_turn(name: str, place: Place, seconds: float) -> dict[str, list[float]]:
    """Run both commands in turn; the one that begins changes from round to round."""
    commands = {"own": shlex.split(COMMANDS[name]), "best": ["bash", "best.sh"]}
    rates: dict[str, list[float]] = {which: [] for which in commands}
    for number in range(ROUNDS):
        for which in list(commands)[:: 1 if number % 2 == 0 else -1]:
            found = plain_rate(commands[which], place, place.folder / f"{which}{number}.tsv", seconds)
            rates[which] += [] if found is None else [found]
    return rates


def compared(name: str, settings: argparse.Namespace) -> list[str]:
    """Search one script and compare both commands; return its row."""
    began_s = time.monotonic()
    place = prepared(place_of(name, settings), name)
    refused = answered(name, place)
    found = refused or searched(place, settings.hours, settings.trials)
    if isinstance(found, str):
        return [name, _minutes(began_s), "", f"no best: {found}", *[""] * 4]
    rates = in_turn(name, place, settings.measure_s) if found.changed else {"own": [], "best": []}
    listed = (" ".join(f"{one:.1f}" for one in rates[which]) for which in ("own", "best"))
    return [name, _minutes(began_s), found.objective, found.changed, *found.told, *listed]


def _minutes(began_s: float) -> str:
    return f"{(time.monotonic() - began_s) / 60:.1f}"


def times(own: Sequence[float], best: Sequence[float]) -> tuple[float, float]:
    """Return how many times as fast the best is, and its standard error; each needs two runs."""
    ratio = fmean(best) / fmean(own)
    relative = sqrt(sum((stdev(one) / fmean(one)) ** 2 / len(one) for one in (own, best)))
    return ratio, ratio * relative


def page(rows: Sequence[Sequence[str]], machine: dict[str, str], settings: argparse.Namespace) -> str:
    """Return the page of results."""
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, no GPU; "
            f"{60 * settings.hours:.1f} minutes of search, {ROUNDS} plain runs of {settings.measure_s:.0f} s of each.",
            "",
            "| script | minutes | objective | changed | told, own → best | side file, own → best | times |",
            "|---|---|---|---|---|---|---|",
            *(_line(row) for row in rows),
        ]
    )


def _line(row: Sequence[str]) -> str:
    name, minutes, objective, changed, told_own, told_best, *listed = row
    own, best = ([float(one) for one in text.split()] for text in listed)
    sides = said = ""
    if min(len(own), len(best)) > 1:
        ratio, error = times(own, best)
        sides, said = f"{fmean(own):.1f} → {fmean(best):.1f}", f"{ratio:.2f} ± {error:.2f}"
    told = f"{told_own} → {told_best}" if told_best else ""
    return f"| {name} | {minutes} | {objective} | {changed or 'your command stays'} | {told} | {sides} | {said} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="one script; repeat for more")
    parser.add_argument("--hours", type=float, default=0.045, help="the time of a search, in which probes begin")
    parser.add_argument("--trials", type=int, default=8, help="the most probes of a search")
    parser.add_argument("--measure-s", type=float, default=12.0, help="the measured time of a plain run")
    parser.add_argument("--work", type=Path, default=Path("runs/faster"), help="the folder of all scripts")
    settings = parser.parse_args()
    settings.work.mkdir(parents=True, exist_ok=True)
    table = settings.work / "rows.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines()] if table.exists() else []
    for name in settings.only or COMMANDS:
        if all(row[0] != name for row in rows):
            rows.append(compared(name, settings))
            table.write_text("".join("\t".join(row) + "\n" for row in rows))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print(page(rows, describe_machine(open_devices("cpu:1")), settings))


if __name__ == "__main__":
    main()
