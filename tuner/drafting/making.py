"""Makes the study file of a typed command: watches the command, asks what is searched, and writes the file."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tuner.drafting.asking import ask_searches, check, placed, searches, shown
from tuner.drafting.command_lines import typed_command
from tuner.drafting.draft import Draft, draft, searching
from tuner.drafting.run_flags import known_of, widened
from tuner.drafting.searches import Known, nothing_varies
from tuner.drafting.watching import Used, Watched, devices_of, first_run, iteration_s
from tuner.drafting.writing import (
    BUSY,
    counted_in_words,
    objective_of,
    samples_in_words,
    study_text,
    typed_in,
    unknown_samples,
)
from tuner.errors import StudyError
from tuner.export import write_files
from tuner.probe import duration
from tuner.study import NAME, exposed, load
from tuner.trainers.presets import PRESETS

STUDIES = Path("studies")
"""The folder of the study files."""


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
    runs: Path = Path("runs")

    def __post_init__(self) -> None:
        """Raises StudyError for a preset that nobody knows, and for a name that no study can have."""
        if self.name is not None and not re.fullmatch(NAME, self.name):
            raise StudyError(
                f"--name {self.name[:40]!r} names no study; use at most 100 letters, digits, dots, dashes, underscores"
            )
        if self.preset is not None and self.preset not in PRESETS:
            raise StudyError(f"no preset is called {self.preset!r}; known: {', '.join(PRESETS)}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Wanted":
        """Return what a command's options say, by name; options about anything else are left out."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    @property
    def free(self) -> list[str]:
        """The parts of the training that may change."""
        named = " ".join(self.search or ())
        is_named = any(word in named for word in ("dtype", "precision", "amp", "bf16", "tf32", "fp16"))
        return [*["batch"] * self.free_batch, *["precision"] * (self.free_precision or is_named)]

    def file(self, name: str) -> Path:
        """Return the study file."""
        return self.out or STUDIES / f"{name}.yaml"

    def check_free(self, file: Path) -> None:
        """Raise StudyError where another file is in the way."""
        if file.exists() and not self.force:
            raise StudyError(f"{file} exists; give --force to overwrite it, or another --name or --out")


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """The study of a command."""

    name: str
    file: Path
    text: str | None = None
    """What is to be written; None for a file that was made from this command before."""


def made_study(
    command: Sequence[str],
    wanted: Wanted,
    say: Callable[[str], None],
    ask: Callable[[str], str] | None = None,
    *,
    to_search: bool = False,
) -> Made:
    """Watch a command, and return its study.

    Args:
        command: the words as typed.
        wanted: what the options say.
        say: shows a line.
        ask: shows a question, and returns what the person types; None where nobody is asked.
        to_search: whether a search follows. Then a file that was made from the same command is taken as it is.

    Raises:
        StudyError: where another file is in the way or, `to_search`, nothing may vary.
        TrainerError: where the command cannot be understood.
        DeviceError: where devices cannot be read.
    """
    typed = typed_command(command)
    name = wanted.name or typed.name
    file = wanted.file(name)
    if to_search and not wanted.force and _is_from(file, typed.typed):
        say(f"{file} was made from this command, and is taken as it is; --force makes it anew")
        return Made(name=name, file=file)
    wanted.check_free(file)
    known = Known(words=typed.words, env=typed.env, cores=1)
    check(wanted.search or [], known)
    named = [*placed(wanted.search or [], known)]
    drafted = draft(typed, devices=wanted.devices, preset=wanted.preset, python=wanted.python, placed=named)
    folder = wanted.runs / name
    if (folder / "study.db").exists():
        say(f"{folder} has trials of another {file}: they stay, and may count otherwise; --name begins anew")
    say(f"watching the command for up to {duration(wanted.seconds)}, on {drafted.devices}")
    for line in drafted.template.changes:
        say(f"  {line}")
    watched, uses = first_run(name, drafted, folder / "init", wanted.seconds)
    for line in _understood(drafted, watched, uses):
        say(line)
    known = known_of(drafted, watched, uses, free_batch=wanted.free_batch, free_precision=wanted.free_precision)
    asks = ask is not None and not (wanted.yes or wanted.search)
    chosen = ask_searches(known, say=say, ask=ask) if ask and asks else searches(known, wanted.search or [])
    drafted = widened(searching(drafted, chosen, known), uses)
    if to_search and not drafted.varies:
        raise StudyError(nothing_varies(drafted.searched, known))
    if to_search and watched.found and objective_of(drafted, watched) == BUSY:
        raise StudyError(
            f"samples are unknown: {unknown_samples(watched.found)}; so no config could be called faster. `tuner init` "
            "writes a study of this command, to which you can add them; without them, it looks for busy devices"
        )
    for line in () if asks else _proposed(drafted, wanted):
        say(line)
    devices = devices_of(drafted.devices, watched.training and watched.training.ranks, uses)
    return Made(name=name, file=file, text=study_text(name, drafted, watched, devices, uses, free=wanted.free))


def write_study(made: Made, warn: Callable[[str], None], say: Callable[[str], None]) -> str:
    """Write a study's file, and return how other commands name the study: its name, or a file at another place.

    The file is its owner's alone where it holds a key, of which `warn` shows a line; elsewhere it has the mode of new
    files. A study without a text stays as it is.
    """
    if made.text is not None:
        path = made.file.resolve()
        write_files(path.parent, {path.name: made.text.encode()})
        if keys := exposed(load(str(made.file))):
            warn("\n".join([*keys, f"only you can read {made.file}"]))
        else:
            umask = os.umask(0o077)
            os.umask(umask)
            with suppress(OSError):
                path.chmod(0o666 & ~umask)
        say(f"wrote {made.file}")
    return made.name if made.file == STUDIES / f"{made.name}.yaml" else str(made.file)


def _is_from(file: Path, typed: Sequence[str]) -> bool:
    """Return whether a study file was made from a command."""
    try:
        return typed_in(file.read_text(encoding="utf-8")) == list(typed)
    except (OSError, UnicodeDecodeError):
        return False


def _proposed(drafted: Draft, wanted: Wanted) -> Iterator[str]:
    """Yield what is searched where nobody is asked."""
    yield from shown(drafted.searches, free=wanted.free_batch)
    if drafted.precision:
        named = " ".join(f"--search {search}" for search in drafted.precision)
        yield f"  left as it is, because precision may change what is learnt; to vary it, too: {named}"


def _understood(drafted: Draft, watched: Watched, uses: Sequence[Used]) -> Iterator[str]:
    """Yield what was understood of a command that was watched."""
    yield f"understood after {duration(watched.seconds)}:"
    if watched.training:
        yield f"  samples: {counted_in_words(watched.training)}"
    elif printed := watched.found:
        yield f"  not counted inside the training: {watched.uncounted}"
        yield f"  progress by {printed.by}; last line: {printed.lines[-1][-120:]}"
        yield f"  samples: {samples_in_words(drafted, printed)}"
    first, last = watched.reports[0], watched.reports[-1]
    seconds = iteration_s(watched.reports)
    each = "" if seconds is None else f", {seconds:.2g} s each"
    yield f"  iterations {first.iteration} to {last.iteration}, the first after {first.t_s:.1f} s{each}"
    for use in uses:
        util = "unknown" if use.util_pct is None else f"{use.util_pct:.0f} % busy"
        memory = "" if use.mem_peak_mib is None else f", {use.mem_peak_mib:.0f} MiB"
        yield f"  {use.device.label}: {util}{memory}"
    if any(use.worked for use in uses) and not all(use.worked for use in uses):
        idle = ", ".join(use.device.name for use in uses if not use.worked)
        yield f"  {idle} did nothing and is left out; does the command start enough ranks?"
