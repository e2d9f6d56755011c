"""The kinds of failure; `failures.toml` has a table for each: who is at fault, and how the output shows it."""

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path


class Blame(StrEnum):
    """Who is at fault when a probe gives no number; what the study does follows from it."""

    CONFIG = "config"
    """The search learns to avoid the config."""
    HOST = "host"
    """The config is tried a second time."""
    SETUP = "setup"
    """The case stops, and a message says what to do."""
    UNKNOWN = "unknown"
    """Three such failures in a row stop the case."""
    NOBODY = "nobody"
    """Something outside stopped the probe; the config is tried again."""


KILLED = "killed"
"""The name of the rule that a killed rank matches."""
SESSION = "session"
"""The name of the rule that lines about a broken session protocol match. It comes last: other rules tell the cause.

In a session, a started trainer serves one probe after another: see `tuner.progress` for the protocol.
"""
BREACH = "[tuner] session: "
"""A line about a broken session protocol begins with this text."""
_TABLES = tomllib.loads(Path(__file__).with_name("failures.toml").read_text(encoding="utf-8"))


class FailureKind(StrEnum):
    """Why a probe gave no number, in the order of the tables. The values are the words in databases and tables."""

    blame: Blame
    rules: Mapping[str, re.Pattern[str]]
    """The lines that show this kind of failure: name → pattern; empty where something else shows it."""
    remedy: str | None
    """What the user does about it; None where another config may fare better."""
    says_nothing: bool
    """Whether the failure says nothing about the config: the config is tried again until it has been measured."""
    invalidity: str
    """The word for it in recorded tables: that of T4, the result schema of Kernel Tuner and others."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    PORT_IN_USE = "port_in_use"
    GPU_LOST = "gpu_lost"
    GPU_BUSY = "gpu_busy"
    MISSING_DEPENDENCY = "missing_dependency"
    MISSING_ASSET = "missing_asset"
    INVALID_COMMAND = "invalid_command"
    INVALID_CONFIG = "invalid_config"
    OTHER_TRAINING = "other_training"
    CRASH = "crash"
    NCCL = "nccl"
    NO_PROGRESS = "no_progress"
    NO_READING = "no_reading"
    IDLE_DEVICE = "idle_device"
    HANG = "hang"
    TOO_SLOW = "too_slow"
    INTERRUPTED = "interrupted"

    def __new__(cls, word: str) -> "FailureKind":
        """Make the member with this word, and give it the contents of its table in `failures.toml`."""
        table = _TABLES[word]
        member = str.__new__(cls, word)
        member._value_ = word
        member.blame = Blame(table["blame"])
        member.rules = {name: re.compile("|".join(patterns)) for name, patterns in table.get("rules", {}).items()}
        member.remedy = table.get("remedy")
        member.says_nothing = table.get("says_nothing", False)
        member.invalidity = table.get("invalidity", "runtime")
        return member


RULES = [(kind, *rule) for kind in FailureKind for rule in kind.rules.items()]
"""The kind, name and pattern of every rule. Of several rules that match, the first one counts."""
RULES.sort(key=lambda rule: rule[1] == SESSION)
