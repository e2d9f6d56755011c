"""The errors that a user can cause. The command line prints each as one message and exits with code 2.

TunerError
├── StudyError      the study file or its selections: an unknown key, an empty ladder, no matching case
├── TrainerError    the trainer's files or options: no `args/` under its root, an unreadable agent file
│   ├── LaunchError         the command cannot be started: no such program
│   └── ConfigRefusedError  this case cannot use this config; other configs may still be probed
├── DeviceError     the requested devices: a card that does not exist, a driver that does not answer
│   └── DeviceLostError     the device does not answer again before somebody resets it
├── StoreError      the database: unreachable, with another schema, or with a study that differs
│   └── EmptyStoreError     the database does not contain the study yet
└── OutputError     a file that the tuner writes: a full disk, a folder without permission

A failed probe is not an exception. It is a value of type `tuner.probe.result.Failure`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

SOURCE = Path(__file__).parents[1]
"""The folder of the package: the clone, where tuner runs from one."""


_IN_PYTHON: ContextVar[bool] = ContextVar("in_python", default=False)
"""Whether `tuner.optimize` was called, so that messages name its arguments."""


class TunerError(Exception):
    """The message says what happened, with which value, and what the user can do about it."""


class StudyError(TunerError):
    """The study file cannot be used, or something that it selects cannot."""


class TrainerError(TunerError):
    """The trainer's files or options cannot be used."""


class LaunchError(TrainerError):
    """The trainer's command cannot be started."""


class ConfigRefusedError(TrainerError):
    """This config cannot be applied to this case. The study records the refusal and continues."""


class DeviceError(TunerError):
    """The requested devices cannot be used."""


class DeviceLostError(DeviceError):
    """A device is unusable until somebody resets it. Any other DeviceError during a measurement may be temporary."""


class StoreError(TunerError):
    """The study database cannot be used."""


class EmptyStoreError(StoreError):
    """The database exists but does not contain the study yet. A caller that needs no stored trials may continue."""


class OutputError(TunerError):
    """The tuner cannot write one of its own files."""


@contextmanager
def for_python() -> Iterator[None]:
    """Let messages name options as the arguments of a function in Python."""
    before = _IN_PYTHON.set(True)
    try:
        yield
    finally:
        _IN_PYTHON.reset(before)


def option(name: str) -> str:
    """Return how the caller writes an option such as `free_batch`; on the command line, that is `--free-batch`."""
    return name if _IN_PYTHON.get() else f"--{name.replace('_', '-')}"


def installs(extra: str, source: Path = SOURCE) -> str:
    """Return the command that installs an extra of this tuner. In a clone, it installs the clone's own package."""
    if not (source / "pyproject.toml").is_file():  # tuner was installed as a package
        return f"`pip install 'launch-tuner[{extra}]'`"
    folder = "." if source == Path.cwd() else source
    return f"`pip install -e '{folder}[{extra}]'`"
