"""A command as a person has typed it, with the script that it starts."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.count import as_parameter
from tuner.drafting.command_lines import program_place, script, variables
from tuner.errors import StudyError
from tuner.study import literal_word
from tuner.trainers.presets import PRESETS

_HYDRA = re.compile(r"^\s*(?:import|from) hydra\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedCommand:
    """A command line, and the text of its script."""

    env: Mapping[str, str]
    """The variables before the command."""
    words: tuple[str, ...]
    script: str = ""
    """The path of the Python script that it names, by `-m` too; empty where it names none."""
    source: str = ""
    """The text of the script; empty where it cannot be read."""

    @property
    def typed(self) -> tuple[str, ...]:
        """All words as typed."""
        return (*(f"{name}={value}" for name, value in self.env.items()), *self.words)

    @property
    def name(self) -> str:
        """The name of its study."""
        stem = Path(self.script or self.words[0]).stem
        return re.sub(r"[^A-Za-z0-9_.-]", "_", as_parameter(stem)).lstrip("_.-") or "study"

    @property
    def uses_hydra(self) -> bool:
        """Whether its script reads its flags by Hydra."""
        return bool(_HYDRA.search(self.source))

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets whose modules its script imports, the most specific first."""
        modules = {*re.findall(r"^\s*(?:from|import)\s+(\w+)", self.source, re.MULTILINE)}
        return tuple(name for name in reversed(list(PRESETS)) if modules & {*PRESETS[name].modules})


def typed_command(command: Sequence[str]) -> TypedCommand:
    """Return a command that a person has typed, as words or in one word.

    Raises StudyError where there are none, or several runs, or where they submit a job instead of training.
    """
    try:
        env, words = variables(shlex.split(command[0]) if len(command) == 1 else command)
    except ValueError as error:
        raise StudyError(
            f"the command {command[0][:60]!r} cannot be read: {error}; give its words after `--`"
        ) from error
    if broken := next((word for word in (*env.values(), *words) if re.search("[\ud800-\udfff]", word)), None):
        raise StudyError(f"{literal_word(broken)} is not UTF-8, as all of a study file must be; rename what it names")
    if not words:
        raise StudyError("there is no command after `--`; write tuner init -- python train.py --batch-size 32")
    if (submitter := Path(words[0]).name) in {"sbatch", "qsub", "bsub"}:
        raise StudyError(
            f"{submitter} submits a job and ends before it trains, so there is nothing to watch; name the training "
            "command of the job script, inside an allocation such as salloc's, or put tuner into the job script"
        )
    path = script(words) or ""
    typed = TypedCommand(env=env, words=tuple(words), script=path, source=text_of(path))
    own = words[(program_place(words) or 0) + 1 :]
    if typed.uses_hydra and (many := next((word for word in own if word in {"--multirun", "-m"}), None)):
        raise StudyError(f"{many} starts several trainings one after another, and a probe is one; leave it out")
    return typed


def text_of(path: str) -> str:
    """Return the text of a script; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return ""
