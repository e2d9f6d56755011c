"""Checks whether a trainer's own Python can import what the trainer needs."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TrainerError
from tuner.probe.reader import record

_SCRIPT = Path(__file__).with_name("imports.py")
_TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A module must be older than a version: always, or only beside a certain version of another module."""

    module: str
    below: str
    beside: tuple[str, str] | None = None
    """The other module, and how its version begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependencies:
    """The modules that a trainer imports, in an order in which it can import them."""

    python: str
    modules: tuple[str, ...]
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The result of importing one module; `version` is None for a module without a version."""

    module: str
    version: str | None = None
    error: str | None = None

    @property
    def missing(self) -> bool:
        """Whether the module itself is missing; False where it is broken or lacks another module."""
        return self.error == f"ModuleNotFoundError: No module named {self.module!r}"


def import_all(dependencies: Dependencies) -> list[Imported]:
    """Import the modules in the trainer's own Python, which sees no GPU, and return the result of each.

    Where that Python dies while it imports a module, this module is the last result. `python` may be a script that
    activates an environment: what the script prints is ignored. Raises TrainerError when the Python cannot be started
    or does not end in time.
    """
    python, modules = dependencies.python, dependencies.modules
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT.read_text(encoding="utf-8"), *modules],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise TrainerError(f"{python} cannot be started: {error.strerror}; set trainer.python") from error
    except subprocess.TimeoutExpired as error:
        raise TrainerError(
            f"{python} has not imported {', '.join(modules)} within {_TIMEOUT_S} s; import them by hand"
        ) from error
    told = map(record, done.stdout.splitlines())
    imported = [Imported(**answer) for answer in told if answer.get("module") in modules]
    if len(imported) < len(modules):
        died = f"{python} ended with exit code {done.returncode} while it was imported"
        imported.append(Imported(module=modules[len(imported)], error=died))
    return imported


def conflicts(imported: Sequence[Imported], limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a complaint about each module that is newer than a limit allows."""
    versions = {one.module: one.version for one in imported if one.version is not None}
    for limit in limits:
        found = versions.get(limit.module)
        if found is not None and _applies(limit, versions) and _numbers(found) >= _numbers(limit.below):
            beside = f" beside {limit.beside[0]} {versions[limit.beside[0]]}" if limit.beside else ""
            yield f"{limit.module} {found} does not work{beside}; install a version below {limit.below}"


def _applies(limit: Limit, versions: Mapping[str, str]) -> bool:
    return limit.beside is None or versions.get(limit.beside[0], "").startswith(limit.beside[1])


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)
