"""`tuner init`: make a study file from a command, or from the preset of a popular trainer."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import DATABASE, RUNS, Runs, asked, devices_option, exposed, finite, open_console, say
from tuner.drafting import draft as drafting
from tuner.drafting.searches import ask_searches, check, nothing_varies, searches, shown
from tuner.drafting.watching import Watched, iteration_s
from tuner.drafting.writing import counted_in_words, preset_text, sample_choices, samples_said, study_text, typed_in
from tuner.errors import StudyError
from tuner.export import write_files
from tuner.probe import duration
from tuner.study import load
from tuner.trainers.presets import PRESETS

STUDIES = Path("studies")

Command = Annotated[list[str] | None, typer.Argument(help="The command line to tune, after `--`.", show_default=False)]
Preset = Annotated[
    str | None,
    typer.Option(help=f"A trainer: {', '.join(PRESETS)}. Without a command, its study is written without a run."),
]
OnDevices = Annotated[str | None, devices_option("as many as the command has ranks")]
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
Seconds = Annotated[float, typer.Option(min=1, callback=finite, help="The longest time to watch the command.")]
Python = Annotated[
    str | None, typer.Option(help="The Python of the trainer's environment; default: the one beside the program.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]
FreeBatch = Annotated[
    bool, typer.Option("--free-batch", help="Let batch and environments grow, which changes what is learnt.")
]
FreePrecision = Annotated[
    bool, typer.Option("--free-precision", help="Let the precision vary, which may change what is learnt.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Take what is proposed, without a question.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the options say about the study of a command."""

    search: list[str] | None = None
    name: str | None = None
    out: Path | None = None
    devices: str | None = None
    python: str | None = None
    preset: str | None = None
    seconds: float = 60.0
    free_batch: bool = False
    free_precision: bool = False
    yes: bool = False
    force: bool = False
    runs: Path = RUNS

    def __post_init__(self) -> None:
        """Raises StudyError for a preset that nobody knows."""
        if self.preset is not None and self.preset not in PRESETS:
            raise StudyError(f"no preset is called {self.preset!r}; known: {', '.join(PRESETS)}")

    @property
    def free(self) -> list[str]:
        """The parts of the training that may change."""
        named = " ".join(self.search or ())
        is_named = any(word in named for word in ("dtype", "precision", "amp", "bf16", "tf32", "fp16"))
        return [*["batch"] * self.free_batch, *["precision"] * (self.free_precision or is_named)]

    def file(self, name: str) -> Path:
        """Return the study file."""
        return self.out or STUDIES / f"{name}.yaml"

    def study(self, name: str) -> str:
        """Return how other commands name the study."""
        return name if self.out in {None, STUDIES / f"{name}.yaml"} else str(self.out)


def init(
    command: Command = None,
    preset: Preset = None,
    search: Searches = None,
    name: Name = None,
    out: OutFile = None,
    devices: OnDevices = None,
    python: Python = None,
    seconds: Seconds = 60.0,
    free_batch: FreeBatch = False,
    free_precision: FreePrecision = False,
    yes: Yes = False,
    force: Force = False,
    runs: Runs = RUNS,
) -> None:
    """Make a study file: run a command once for up to a minute and watch it, or take a trainer's preset."""
    console = open_console()
    if not command and preset is None:
        raise StudyError("name a command, as in `tuner init -- python train.py --batch-size 32`, or a --preset")
    wanted = Wanted(
        search=search,
        name=name or (None if command else preset),
        out=out,
        devices=devices,
        python=python,
        preset=preset,
        seconds=seconds,
        free_batch=free_batch,
        free_precision=free_precision,
        yes=yes,
        force=force,
        runs=runs,
    )
    if not command:
        file = wanted.file(str(wanted.name))
        _check_free(file, wanted)
        _write(file, preset_text(str(wanted.name), str(preset)))
        _share(file)
        console.print(f"wrote {file}; put your own command and values in it, then `tuner doctor --study {file}`")
        return
    study = made_study(console, command, wanted)
    console.print(f"next: `tuner try --study {shlex.quote(study)}` measures one config")


def made_study(console: Console, command: list[str], wanted: Wanted, *, to_search: bool = False) -> str:
    """Watch a command and write its study; return the study's name, or its file where that has another place.

    A study that is there `to_search` and was made from the same command is returned as it is. Raises StudyError where
    another file is in the way or, `to_search`, nothing may vary; and the errors of `draft` and `first_run`.
    """
    env, words = drafting.typed_words(command)
    name = wanted.name or drafting.study_name(words)
    file, study = wanted.file(name), wanted.study(name)
    typed = (*(f"{variable}={value}" for variable, value in env.items()), *words)
    if to_search and not wanted.force and _is_from(file, typed):
        console.print(f"{file} was made from this command, and is taken as it is; --force makes it anew")
        return study
    _check_free(file, wanted)
    folder = wanted.runs / name
    if (folder / DATABASE).exists():
        console.print(f"{folder} has trials of another {file}: they stay, and may count otherwise; --name begins anew")
    ask = None if wanted.yes or wanted.search else _asker(console)
    check(wanted.search or [])
    drafted = drafting.draft(command, devices=wanted.devices, preset=wanted.preset, python=wanted.python)
    console.print(f"watching the command for up to {duration(wanted.seconds)}, on {drafted.devices}")
    for replaced, instead in drafted.template.replaced:
        console.print(f"  {replaced} → {instead}" if replaced else f"  added: {instead}")
    watched, uses = drafting.first_run(name, drafted, folder / "init", wanted.seconds)
    _understood(console, drafted, watched, uses)
    known = drafting.known_of(
        drafted, watched, uses, free_batch=wanted.free_batch, free_precision=wanted.free_precision
    )
    found = tuple(ask(known)) if ask else searches(known, wanted.search or [])
    drafted = drafting.widened(drafting.searching(drafted, found, known), uses)
    if to_search and not drafted.varies:
        raise StudyError(nothing_varies(drafted.searched, known))
    if ask is None:
        _propose(console, drafted, wanted)
    is_asked = not wanted.yes and _is_asked(console)
    samples = _samples(sample_choices(drafted, watched.found)) if watched.found and is_asked else ""
    devices = drafting.devices_of(drafted, watched, uses)
    text = study_text(name, drafted, watched, devices, uses, samples=samples, free=wanted.free)
    _write(file, text)
    if keys := exposed(load(str(file))):
        say("\n".join([*keys, f"only you can read {file}"]))
    else:
        _share(file)
    console.print(f"wrote {file}")
    return study


def _is_from(file: Path, typed: Sequence[str]) -> bool:
    """Return whether a study file was made from a command."""
    try:
        return typed_in(file.read_text(encoding="utf-8")) == list(typed)
    except (OSError, UnicodeDecodeError):
        return False


def _check_free(file: Path, wanted: Wanted) -> None:
    if file.exists() and not wanted.force:
        raise StudyError(f"{file} exists; give --force to overwrite it, or another --name or --out")


def _asker(console: Console) -> drafting.Ask | None:
    """Return what asks the person at the terminal; None where there is no terminal."""
    return partial(ask_searches, say=say, answer=_answer) if _is_asked(console) else None


def _is_asked(console: Console) -> bool:
    return console.is_terminal and sys.stdin.isatty()


def _answer(prompt: str) -> str:
    return asked(lambda: typer.prompt(prompt, default="", show_default=False, prompt_suffix=""))


def _samples(choices: Sequence[tuple[str, str]]) -> str:
    """Return the samples of a printed iteration as the person at the terminal says them; empty where nobody knows."""
    if not choices:
        return ""
    for number, (what, _) in enumerate(choices, 1):
        say(f"  {number} {what}")
    typed = _answer("What is a printed iteration? (Enter: unknown) ").strip()
    return choices[int(typed) - 1][1] if typed.isdecimal() and 0 < int(typed) <= len(choices) else ""


def _write(file: Path, text: str) -> None:
    """Write a study file that is its owner's alone, until `_share` says that it holds no key."""
    whole = file.resolve()
    write_files(whole.parent, {whole.name: text.encode()})


def _share(file: Path) -> None:
    """Give a study file without a key the mode of other new files; it stays private where that is not possible."""
    umask = os.umask(0o077)
    os.umask(umask)
    with suppress(OSError):
        file.chmod(0o666 & ~umask)


def _propose(console: Console, drafted: drafting.Draft, wanted: Wanted) -> None:
    """Print what is searched where nobody is asked."""
    for line in shown(drafted.searches, free=wanted.free_batch):
        console.print(line)
    if drafted.precision:
        named = " ".join(f"--search {one}" for one in drafted.precision)
        console.print(f"  left as it is, because precision may change what is learnt; to vary it, too: {named}")


def _understood(console: Console, drafted: drafting.Draft, watched: Watched, uses: list[drafting.Used]) -> None:
    console.print(f"understood after {duration(watched.seconds)}:")
    first, last = watched.reports[0], watched.reports[-1]
    if watched.training:
        console.print(f"  samples: {counted_in_words(watched.training)}")
    elif found := watched.found:
        console.print(f"  not counted inside the training: {watched.uncounted}")
        console.print(f"  progress by {found.by}; last line: {found.lines[-1][-120:]}")
        console.print(f"  samples: {samples_said(drafted, found)}")
    seconds = iteration_s(watched.reports)
    each = "" if seconds is None else f", {seconds:.2g} s each"
    console.print(f"  iterations {first.iteration} to {last.iteration}, the first after {first.t_s:.1f} s{each}")
    for use in uses:
        util = "unknown" if use.util_pct is None else f"{use.util_pct:.0f} % busy"
        memory = "" if use.mem_peak_mib is None else f", {use.mem_peak_mib:.0f} MiB"
        console.print(f"  {use.device.label}: {util}{memory}")
    if any(use.worked for use in uses) and not all(use.worked for use in uses):
        idle = ", ".join(use.device.name for use in uses if not use.worked)
        console.print(f"  {idle} did nothing and is left out; does the command start enough ranks?")
