"""A draft: what is known of the study of a command before its file is written: the command, the flags, the devices."""

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.count import Flag, as_parameter
from tuner.devices.found import open_devices
from tuner.drafting.command_template import HYDRA_FOLDER, Template, literal_text, template
from tuner.drafting.searches import Known, Role, SearchedFlag, proposed
from tuner.errors import StudyError
from tuner.study import Config, Value
from tuner.study.command_words import ranks, script_without_flags, settings
from tuner.trainers.command_options import PRESETS
from tuner.trainers.typed_command import TypedCommand


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The study of a command: first as it is typed, and after the first run with the flags that are searched."""

    command: TypedCommand
    searches: tuple[SearchedFlag, ...]
    """The flags that are searched, or computed from searched ones."""
    devices: str
    """The devices to watch, as a study names them."""
    python: str = ""
    """The Python of the environment that has the command's program; empty for programs of the system."""
    precision: tuple[SearchedFlag, ...] = ()
    """The flags of the precision that could be searched and are not, because nobody has allowed it."""
    flags: tuple[Flag, ...] = ()
    """The flags of the command's script, as far as they are known."""

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of the study: those of the preset and those typed before the command.

        A searched variable has its placeholder as its value. Where the command line has a flag of the same name, the
        flag is searched instead, and the variable keeps its typed value.
        """
        of_preset = PRESETS[self.command.presets[0]].env if self.command.presets else {}
        placeholders = {search.flag: search.placeholder for search in self.searches}
        set_by_words = {setting.name for setting in settings(self.command.words, self.flags)}
        searched_names = self.command.env.keys() & (placeholders.keys() - set_by_words)
        searched = {name: placeholders[name] for name in searched_names}
        typed = {name: literal_text(value, placeholders) for name, value in self.command.env.items()}
        return {**of_preset, **typed, **searched}

    @property
    def template(self) -> Template:
        """The command line with placeholders for what is searched and for what the tuner decides."""
        placeholders = {search.flag: search.placeholder for search in self.searches if not search.file}
        folder = {HYDRA_FOLDER: "{out_dir}"} if self.command.uses_hydra else {}
        return template(self.command.words, {**placeholders, **folder}, self.env.values(), self.flags)

    @property
    def searched(self) -> tuple[SearchedFlag, ...]:
        """The flags that are parameters of the study: all but the computed ones."""
        return tuple(search for search in self.searches if not search.computed)

    @property
    def computed(self) -> dict[str, str]:
        """Computed flag, by its parameter → its arithmetic, such as `32 / {batch_size}`."""
        return {search.parameter: search.computed for search in self.searches if search.computed}

    @property
    def config(self) -> Config:
        """The config of the first run: parameter → the value that the command uses by itself.

        With 0 workers of the data loader, parameters that need workers are left out.
        """
        config = {search.parameter: search.first for search in self.searched}
        if self._workers_parameter and not config[self._workers_parameter]:
            return {name: value for name, value in config.items() if not self._needs_workers(name)}
        return config

    @property
    def trainer(self) -> dict[str, Any]:
        """The section `trainer` of a study for the first run, in which steps are counted inside."""
        options = {"command": self.template.words, "env": self.env, "computed": self.computed, "files": self.files}
        options["count"] = "inside"
        return {"name": "command", "python": self.python, "options": options}

    @property
    def unset(self) -> dict[str, Value]:
        """Parameter of a searched flag that is not typed → the script's default; a probe of it leaves the flag out.

        Neither switches nor values in files are among them.
        """
        names = [search.flag for search in self.searched]
        typed = {setting.parameter for setting in settings(self.command.words, self.flags, names)}
        typed |= {as_parameter(name) for name in self.command.env}  # an environment variable before the command
        with_value = [search for search in self.searched if not search.is_switch and not search.file]
        untyped = [search for search in with_value if search.parameter not in typed]
        return {search.parameter: search.current for search in untyped if search.current is not None}

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """Configuration file → parameter → the keys to its value."""
        keys_of: dict[str, dict[str, str]] = {}
        for search in self.searches:
            if search.file:
                keys_of.setdefault(search.file, {})[search.parameter] = search.flag.partition(":")[2]
        return keys_of

    @property
    def varies(self) -> bool:
        """Whether any flag has more than one value."""
        return any(search.varies for search in self.searches)

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has as many samples in each config, so that iterations/s compare configs."""
        return all(search.keeps_iterations for search in self.searches)

    def space(self) -> dict[str, dict[str, Any]]:
        """Return the section `space` of the study file: parameter → its values, as the file writes them."""
        return {search.parameter: self._space_entry(search) for search in self.searched}

    @property
    def _workers_parameter(self) -> str:
        """The parameter with the number of the loader's workers, if 0 is among its values; otherwise an empty text."""
        with_zero = [search for search in self.searched if Role.WORKERS.has(search.flag) and 0 in search.values]
        return with_zero[0].parameter if with_zero else ""

    def _needs_workers(self, parameter: str) -> bool:
        """Return whether a parameter has an effect only with loader workers, and some configs have no workers."""
        return bool(self._workers_parameter) and Role.OF_WORKERS.has(parameter)

    def _space_entry(self, search: SearchedFlag) -> dict[str, Any]:
        """Return the values of a flag, with growth and condition, as the space of a study file has them."""
        if search.auto:
            own = {"own": search.current} if isinstance(search.current, int) else {}
            return {"ladder": "auto", "min": search.values[0], "max": search.values[-1], **own}
        limit = growth_limit(search)
        growth = {"grow": limit} if limit else {}
        condition = {"when": {self._workers_parameter: {"min": 1}}} if self._needs_workers(search.parameter) else {}
        return {"choices": list(search.ordered), **growth, **condition}


def growth_limit(search: SearchedFlag) -> int | None:
    """Return the size up to which a search may double a flag's largest value: four times that value, or its `most`.

    Returns None where the values may not grow: a person has chosen them, there is only one, a value is not a whole
    number, or the largest is `most` already.
    """
    sizes = [value for value in search.values if isinstance(value, int) and not isinstance(value, bool)]
    are_sizes_alone = len(sizes) == len(search.values)
    if not (search.grows and are_sizes_alone and len(sizes) > 1):
        return None
    limit = min(4 * max(sizes), search.most or math.inf)
    return int(limit) if limit > max(sizes) else None


def draft(
    command: TypedCommand,
    *,
    devices: str | None = None,
    python: str | None = None,
    searches: Sequence[SearchedFlag] = (),
) -> Draft:
    """Return the draft of a command's study before the first run.

    Args:
        command: the command.
        devices: the devices to watch; None for as many as the command has ranks.
        python: the Python of the trainer's environment; None for that of the environment of the command's program.
        searches: the flags whose placeholders are typed in the command; all others are chosen after the first run.

    Raises:
        DeviceError: for unknown devices.
    """
    return Draft(
        command=command,
        searches=tuple(searches),
        devices=devices or _devices(ranks(command.words)),
        python=python or environment_python(command.words[0]),
    )


def with_searches(drafted: Draft, searches: Sequence[SearchedFlag], known: Known) -> Draft:
    """Return a draft that searches these flags; `known` is what the first run has shown.

    Raises StudyError where a flag would be added to a shell script that ignores its arguments.
    """
    chosen = {search.flag for search in searches}
    precision = tuple(search for search in proposed(known) if search.is_precision and search.flag not in chosen)
    drafted = replace(drafted, searches=tuple(searches), precision=precision, flags=tuple(known.flags))
    added = [change.replacement for change in drafted.template.changes if not change.typed]
    if added and (script := script_without_flags(drafted.command.words)):
        way = f'the placeholder, such as {added[0].split()[-1]}, where the command has the value, or pass "$@" on in it'
        if script in {"make", "gmake"}:
            way = f"a variable of the Makefile, as in `--search WORKERS=0,2 -- {script} train WORKERS=0`"
        raise StudyError(f"{script} reads no flags, so adding {' '.join(added)} would change nothing; write {way}")
    return drafted


def environment_python(program: str) -> str:
    """Return the path of the Python in the virtual environment that a program such as `torchrun` belongs to.

    The study file names this Python, so that a search finds the program even from a shell in which the environment is
    not active. Returns an empty text for a program outside of the environments of venv and conda.
    """
    path = shutil.which(program)
    if path is None or os.sep in program:  # a program named by its path, such as ./train.sh, is found anyway
        return ""
    folder = Path(path).parent
    is_environment = any((folder.parent / name).exists() for name in ("pyvenv.cfg", "conda-meta"))  # of venv, of conda
    python = folder / "python"
    return str(python.absolute()) if is_environment and python.exists() else ""


def _devices(count: int | None) -> str:
    """Return the devices on which to run `count` ranks, as a study names them; None: all cards, or one CPU rank."""
    devices = open_devices("auto").devices
    if not devices[0].is_gpu:
        return f"cpu:{count or 1}"
    return "auto" if count is None or count >= len(devices) else ",".join(map(str, range(count)))
