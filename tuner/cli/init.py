"""`tuner init`: make a study file from a command, or from the preset of a popular trainer."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import RUNS, Runs, not_empty, open_console, say
from tuner.drafting.draft import Ask, Draft, FirstRun, Used, draft, first_run, narrowed, study_name, used
from tuner.drafting.searches import ask_searches
from tuner.drafting.writing import preset_text, samples_said, study_text
from tuner.errors import OutputError, StudyError
from tuner.probe.units import duration
from tuner.study.load import load
from tuner.study.space import LADDER
from tuner.trainers.presets import PRESETS

STUDIES = Path("studies")

Command = Annotated[list[str] | None, typer.Argument(help="The command line to tune, after `--`.", show_default=False)]
Preset = Annotated[
    str | None,
    typer.Option(help=f"A trainer: {', '.join(PRESETS)}. Without a command, its study is written without a run."),
]
Watched = Annotated[
    str | None,
    typer.Option(
        "--devices",
        callback=not_empty,
        help="auto, cpu:RANKS or CUDA indices (0,1); default: as many as the command has ranks.",
    ),
]
Searches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A flag and its values: batch_size=32,64 or num_envs=256..65536. Repeat for more. "
        "Default: at a terminal, you are asked.",
    ),
]
Name = Annotated[str | None, typer.Option(help="The name of the study; default: that of the script.")]
OutFile = Annotated[Path | None, typer.Option("--out", dir_okay=False, help="The file; default: studies/NAME.yaml.")]
Seconds = Annotated[float, typer.Option(min=1, help="The longest time to watch the command.")]
Python = Annotated[
    str | None, typer.Option(help="The Python of the trainer's environment; default: the one beside the program.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]


def init(
    command: Command = None,
    preset: Preset = None,
    search: Searches = None,
    name: Name = None,
    out: OutFile = None,
    devices: Watched = None,
    python: Python = None,
    seconds: Seconds = 60.0,
    force: Force = False,
    runs: Runs = RUNS,
) -> None:
    """Make a study file: run a command once for up to a minute and watch it, or take a trainer's preset."""
    console = open_console()
    if preset is not None and preset not in PRESETS:
        raise StudyError(f"no preset is called {preset!r}; known: {', '.join(PRESETS)}")
    if not command and preset is None:
        raise StudyError("name a command, as in `tuner init -- python train.py --batch-size 32`, or a --preset")
    named = name or (study_name(command) if command else str(preset))
    file = out or STUDIES / f"{named}.yaml"
    if file.exists() and not force:
        raise StudyError(f"{file} exists; give --force to overwrite it, or another --name or --out")
    if not command:
        _write(file, preset_text(named, str(preset)))
        console.print(f"wrote {file}; put your own command and values in it, then `tuner doctor --study {file}`")
        return
    drafted = draft(command, search or [], devices=devices, preset=preset, python=python, ask=_asker(console))
    _introduce(console, drafted, seconds)
    seen = first_run(named, drafted, runs / named / "init", seconds)
    uses = used(seen.watched, seen.devices)
    _write(file, study_text(named, drafted, seen.watched, narrowed(drafted.devices, uses), uses))
    load(str(file))
    _understood(console, drafted, seen, uses)
    study = named if file == STUDIES / f"{named}.yaml" else str(file)
    ladder = [f"--set {LADDER}={one.typed}" for one in drafted.searches if one.parameter == LADDER and one.typed]
    try_it = " ".join(["tuner try --study", shlex.quote(study), *ladder])  # a ladder begins with its largest rung
    console.print(f"wrote {file}; next: `{try_it}` measures one config")


def _asker(console: Console) -> Ask | None:
    """Return what asks the person at the terminal; None where there is no terminal."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return None

    def answer(prompt: str) -> str:
        return typer.prompt(prompt, default="", show_default=False, prompt_suffix="")

    return partial(ask_searches, say=say, answer=answer)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{file} cannot be written: {error.strerror}; name another --out") from error


def _introduce(console: Console, drafted: Draft, seconds: float) -> None:
    console.print(f"watching the command for up to {duration(seconds)}, on {drafted.devices}")
    for typed, instead in drafted.template.replaced:
        console.print(f"  {typed} → {instead}" if typed else f"  added: {instead}")
    for one in drafted.searches:
        console.print(f"  searched: {one.parameter}: {' '.join(map(str, one.values))}")


def _understood(console: Console, drafted: Draft, seen: FirstRun, uses: list[Used]) -> None:
    found = seen.watched.found
    how = f"preset {found.preset}" if found.preset else "lines of one form" if found.patterns else "report()"
    how = f"the file {found.file.pattern}" if found.file else how
    console.print(f"understood after {duration(seen.watched.seconds)}:")
    first, last = found.reports[0], found.reports[-1]
    many = f"{len(found.reports)} iteration(s) seen, numbered {first.iteration} to {last.iteration}"
    console.print(f"  progress by {how}: {many}")
    each = "" if found.iteration_s is None else f", {found.iteration_s:.2g} s per iteration"
    console.print(f"  the first after {first.t_s:.1f} s{each}")
    console.print(f"  last line: {found.lines[-1][-120:]}")
    console.print(f"  samples: {samples_said(drafted, found, sum(use.worked for use in uses))}")
    for use in uses:
        util = "unknown" if use.util_pct is None else f"{use.util_pct:.0f} % busy"
        memory = "" if use.mem_peak_mib is None else f", {use.mem_peak_mib:.0f} MiB"
        console.print(f"  {use.device.label}: {util}{memory}")
    if any(use.worked for use in uses) and not all(use.worked for use in uses):
        idle = ", ".join(use.device.name for use in uses if not use.worked)
        console.print(f"  {idle} did nothing and is left out; does the command start enough ranks?")
