"""The Python script that a command line names."""

from collections.abc import Sequence
from itertools import chain

LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch"}
"""The modules of torch that start ranks of a script."""


def script(words: Sequence[str]) -> str | None:
    """Return the path of the Python script that a command line names, by `-m` too; None where it names none."""
    place = program_place(words)
    if place is None:
        return None
    return words[place] if words[place].endswith(".py") else f"{words[place].replace('.', '/')}.py"


def program_place(words: Sequence[str]) -> int | None:
    """Return the position of the word that names a Python script or module, other than a launcher of torch."""
    modules = (place for place in range(1, len(words)) if words[place - 1] == "-m" and words[place] not in LAUNCHERS)
    scripts = (place for place, word in enumerate(words) if word.endswith(".py"))
    return next(chain(scripts, modules), None)
