"""A command as a person has typed it: its variables, its words, and what its script holds and imports."""

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.count import as_parameter
from tuner.errors import StudyError
from tuner.study import literal_word
from tuner.study.command_words import program_place, script, split_variables
from tuner.trainers.command_options import PRESETS


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedCommand:
    """A command line, and the text of its script."""

    env: Mapping[str, str]
    """The variables before the command."""
    words: tuple[str, ...]
    """The words of the command, the program first."""
    script: str = ""
    """The path of the Python script that it names, by `-m` too; empty where it names none."""
    source: str = ""
    """The text of the script; empty where it cannot be read."""

    @property
    def typed(self) -> tuple[str, ...]:
        """All words as typed: variables first, without an `env` that only sets them."""
        return (*(f"{name}={value}" for name, value in self.env.items()), *self.words)

    @property
    def starters(self) -> tuple[str, ...]:
        """The words before the script or module, such as `nohup python`; all words where it names none."""
        return self.words[: program_place(self.words)]

    @property
    def known_script(self) -> str | None:
        """The path of the script if the file exists; None otherwise."""
        return self.script if self.script and Path(self.script).is_file() else None

    @property
    def name(self) -> str:
        """The name for the study of this command: that of its script or program, in characters that a name may have."""
        stem = Path(self.script or self.words[0]).stem
        return re.sub(r"[^A-Za-z0-9_.-]", "_", as_parameter(stem)).lstrip("_.-") or "study"

    @property
    def uses_hydra(self) -> bool:
        """Whether its script reads its flags by Hydra."""
        return bool(re.search(r"^\s*(?:import|from) hydra\b", self.source, re.MULTILINE))

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets whose modules its script imports, the most specific first."""
        modules = {*re.findall(r"^\s*(?:from|import)\s+(\w+)", self.source, re.MULTILINE)}
        return tuple(name for name in reversed(list(PRESETS)) if modules & {*PRESETS[name].modules})


def typed_command(command: Sequence[str]) -> TypedCommand:
    """Return a command that a person has typed, as several words, or as one text in shell quoting.

    Raises StudyError for a command that no probe can run: one without words, with a quote that is not closed, with
    several trainings, or one that submits a job.
    """
    try:
        env, words = split_variables(shlex.split(command[0]) if len(command) == 1 else command)
    except ValueError as error:  # such as a quote that is not closed
        problem = f"the command {command[0][:60]!r} cannot be read: {error}"
        raise StudyError(f"{problem}; give its words after `--`") from error
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
    script_words = words[(program_place(words) or 0) + 1 :]
    multirun = next((word for word in script_words if word in {"--multirun", "-m"}), None)
    if typed.uses_hydra and multirun:
        raise StudyError(f"{multirun} starts several trainings one after another, and a probe is one; leave it out")
    return typed


def text_of(path: str) -> str:
    """Return the text of a script; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


def syntax_tree(source: str | bytes) -> ast.Module | None:
    """Return the syntax tree of a Python source; None where this Python cannot parse it."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two where it is nested too deeply
        return None
