"""A command line as a study: what it searches, and on which devices."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.count import Flag, as_parameter
from tuner.devices.found import open_devices
from tuner.drafting import command_lines
from tuner.drafting.command_lines import TypedCommand
from tuner.drafting.searches import Known, Role, SearchedFlag, proposed
from tuner.errors import StudyError
from tuner.study import Config, Value
from tuner.trainers.presets import PRESETS


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A command line as a study: what can be said before it runs."""

    command: TypedCommand
    env: Mapping[str, str]
    template: command_lines.Template
    searches: tuple[SearchedFlag, ...]
    devices: str
    """The devices to watch, as a study names them."""
    likely: tuple[str, ...]
    """Presets of the libraries that the script imports, or the preset that the user names."""
    python: str = ""
    """The Python of the environment that has the command's program; empty for programs of the system."""
    precision: tuple[SearchedFlag, ...] = ()
    """The flags of the precision that nobody has confirmed, and that are not searched."""
    flags: tuple[Flag, ...] = ()
    """The flags of the command's script, as far as they are known."""

    @property
    def searched(self) -> tuple[SearchedFlag, ...]:
        """The flags that are parameters of the study."""
        return tuple(search for search in self.searches if not search.computed)

    @property
    def computed(self) -> dict[str, str]:
        """The flags that follow from others, and their arithmetic."""
        return {search.parameter: search.computed for search in self.searches if search.computed}

    @property
    def config(self) -> Config:
        """The config with which the command is watched: its own values."""
        config = {search.parameter: search.first for search in self.searched}
        return {name: value for name, value in config.items() if not self._needs(name) or config[self._workers] != 0}

    @property
    def trainer(self) -> dict[str, Any]:
        """The trainer of the study before its progress is known."""
        options = {"command": self.template.words, "env": self.env, "computed": self.computed, "files": self.files}
        options["count"] = "inside"
        return {"name": "command", "python": self.python, "options": options}

    @property
    def unset(self) -> dict[str, Value]:
        """The searched flags that the command does not name, with the values that the script has without them."""
        names = [search.flag for search in self.searched]
        typed = {setting.parameter for setting in command_lines.settings(self.command.words, self.flags, names)}
        typed |= {as_parameter(name) for name in self.command.env}
        return {
            search.parameter: search.typed
            for search in self.searched
            if search.typed is not None and not (search.is_switch or search.file) and search.parameter not in typed
        }

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
        """Whether a flag has more than one value."""
        return any(search.varies for search in self.searches)

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has the same samples with all values, so that iterations/s compare configs."""
        return all(search.keeps_iterations for search in self.searches)

    def space(self) -> dict[str, dict[str, Any]]:
        """Return the study's space."""
        return {search.parameter: self._values(search) for search in self.searched}

    @property
    def _workers(self) -> str:
        """The parameter with the workers of the loader, where no worker is among its values; otherwise empty."""
        without = [search for search in self.searched if Role.WORKERS.has(search.flag) and 0 in search.values]
        return without[0].parameter if without else ""

    def _needs(self, parameter: str) -> bool:
        """Return whether a parameter counts only where a loader has workers, and a search tries none, too."""
        return bool(self._workers) and Role.OF_WORKERS.has(parameter)

    def _values(self, search: SearchedFlag) -> dict[str, Any]:
        """Return the values of a flag as the space of a study has them."""
        if search.auto:
            own = {"own": search.typed} if isinstance(search.typed, int) else {}
            return {"ladder": "auto", "min": search.values[0], "max": search.values[-1], **own}
        needs = {"when": {self._workers: {"min": 1}}} if self._needs(search.parameter) else {}
        grow = largest(search)
        return {"choices": list(search.ordered), **({"grow": grow} if grow else {}), **needs}


def largest(search: SearchedFlag) -> int | None:
    """Return how far a range of sizes grows that no person has chosen: to four times its largest value."""
    sizes = [value for value in search.values if isinstance(value, int) and not isinstance(value, bool)]
    is_range = search.grows and len(sizes) >= max(2, len(search.values))
    return 4 * max(sizes) if is_range else None


def draft(
    command: TypedCommand,
    *,
    devices: str | None = None,
    preset: str | None = None,
    python: str | None = None,
    placed: Sequence[SearchedFlag] = (),
) -> Draft:
    """Return a command line as a study, before it is watched. Only `placed` is searched, whose placeholders are typed.

    Raises DeviceError for unknown devices.
    """
    python = python or environment(command.words[0])
    likely = (preset,) if preset else command.presets
    drafted = Draft(
        command=command,
        env=PRESETS[likely[0]].env if likely else {},
        template=command_lines.Template(words=(), replaced=()),
        searches=tuple(placed),
        devices=devices or _devices(command_lines.ranks(command.words)),
        likely=likely,
        python=python,
    )
    drafted = replace(drafted, env=_with_placeholders(drafted))
    return replace(drafted, template=_template(drafted))


def searching(drafted: Draft, searches: Sequence[SearchedFlag], known: Known) -> Draft:
    """Return a draft that searches these flags. Raises StudyError where a flag would be added in vain."""
    named = {search.flag for search in searches}
    left = tuple(search for search in proposed(known) if search.is_precision and search.flag not in named)
    searched = replace(drafted, searches=tuple(searches), precision=left, flags=tuple(known.flags))
    searched = replace(searched, env=_with_placeholders(searched))
    searched = replace(searched, template=_template(searched))
    _check_added(searched.command.words, searched.template)
    return searched


def _template(drafted: Draft) -> command_lines.Template:
    """Return the command line with placeholders for what is searched and for what the tuner decides."""
    placeholders = {search.flag: search.placeholder for search in drafted.searches if not search.file}
    folder = {"hydra.run.dir": "{out_dir}"} if drafted.command.uses_hydra else {}
    typed = drafted.command
    return command_lines.template(typed.words, {**placeholders, **folder}, drafted.env.values(), drafted.flags)


def _with_placeholders(drafted: Draft) -> dict[str, str]:
    """Return the variables with placeholders: typed ones, and one for each searched variable that no word sets."""
    placeholders = {search.flag: search.placeholder for search in drafted.searches}
    set_by_words = {setting.name for setting in command_lines.settings(drafted.command.words, drafted.flags)}
    variables = {name: placeholders[name] for name in drafted.command.env.keys() & placeholders.keys() - set_by_words}
    typed = {name: command_lines.literal_text(value, placeholders) for name, value in drafted.command.env.items()}
    return {**drafted.env, **typed, **variables}


def _check_added(words: Sequence[str], filled: command_lines.Template) -> None:
    """Raise StudyError where flags would be added to a shell script that reads none."""
    added = [instead for typed, instead in filled.replaced if not typed]
    if added and (script := command_lines.deaf_script(words)):
        raise StudyError(
            f"{script} reads no flags, so adding {' '.join(added)} would change nothing; write the placeholder, "
            f'such as {added[0].split()[-1]}, where the command has the value, or pass "$@" on in the script'
        )


def environment(program: str) -> str:
    """Return the Python beside a program that PATH finds in an environment of venv or conda; empty for any other."""
    path = shutil.which(program)
    folder = Path(path).parent if path and os.sep not in program else Path()
    kept = [folder.parent / name for name in ("pyvenv.cfg", "conda-meta")]
    python = folder / "python"
    return str(python.absolute()) if python.exists() and any(path.exists() for path in kept) else ""


def _devices(count: int | None) -> str:
    """Return the devices to watch for so many ranks; without a number, every card or one CPU rank."""
    cards = open_devices("auto").devices
    if not cards[0].is_gpu:
        return f"cpu:{count or 1}"
    return "auto" if count is None or count >= len(cards) else ",".join(map(str, range(count)))
