"""What one probe will do, decided before anything starts."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.study.space import Config
from tuner.study.spec import ProbeSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device as the trainer names it (`cuda:0`, `cpu:1`) and as the system knows it."""

    name: str
    model: str
    uuid: str | None = None
    mem_total_mib: float | None = None

    @property
    def label(self) -> str:
        """The name and, of a card, the beginning of the uuid that `nvidia-smi -L` lists it by.

        A trainer calls the cards that it is shown `cuda:0`, `cuda:1`, …, whichever of the machine's these are.
        """
        return f"{self.name} ({self.identity})" if self.uuid else self.name

    @property
    def identity(self) -> str:
        """What tells it from the devices of other machines: of a card the beginning of its uuid, else the model."""
        return self.uuid[:12] if self.uuid else self.model

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU rather than a share of the CPU."""
        return self.name.startswith("cuda")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Where and with what a probe runs: everything a trainer needs besides the case and the config."""

    devices: tuple[Device, ...]
    out_dir: Path
    """Of this probe alone, empty or not there yet; absolute."""
    port: int
    """A free TCP port for the ranks to meet at."""
    limits: ProbeSpec
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the study and the topology ask for."""
    to_train: bool = False
    """Whether the command is for training, by hand: without what makes a run a probe, such as its end."""

    @property
    def console(self) -> Path:
        """The file that takes the trainer's output."""
        return self.out_dir / "console.log"

    @property
    def progress(self) -> Path:
        """The JSON-lines file named in TUNER_PROGRESS."""
        return self.out_dir / "progress.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePatterns:
    """How a trainer's printed lines tell progress.

    Each pattern has one or more of the named groups `iteration`, `samples`, `rank`; they are tried in turn, and a mark
    is complete when the last one has matched.
    """

    patterns: tuple[str, ...] = ()
    block_s: float | None = None
    """For a trainer that tells no iterations: blocks of this length, from its first line on, stand for them. Such a
    trainer cannot be told from one that hangs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbePlan:
    """A probe as values: running it by hand needs nothing else.

    A cold plan's `argv` runs this probe and ends; a warm plan's starts what serves a session, and `request` is this
    probe's run in it.
    """

    config: Config
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """Variables set beside those that the tuner itself was started with."""
    files: Mapping[Path, str]
    """Text files to write first, absolute path → content."""
    slot: Slot
    progress: LinePatterns = LinePatterns()
    expected: tuple[Path, ...] = ()
    """Files that a run which ended by itself must have left."""
    session_key: str
    """Warm plans with equal keys can share a session."""
    request: Mapping[str, Any] | None = None
    """What a session is asked to run, its files apart; None where `argv` is a command for this probe alone."""
    base_agent: str = ""
    """The agent file as shipped, for the tables."""
    agent_config: str = ""
    """The agent file that this probe uses, for the tables."""

    @property
    def digest(self) -> str:
        """Name the plan by 12 hexadecimal digits; the out dir and the port do not count."""
        files = sorted((str(path), text) for path, text in self.files.items())
        parts = [self.argv, sorted(self.env.items()), files, *([self.request] if self.request is not None else [])]
        out_dir = json.dumps(str(self.slot.out_dir))[1:-1]  # as it stands inside the other texts, escapes and all
        text = json.dumps(parts).replace(out_dir, "OUT")
        text = re.sub(rf"(?<!\d){self.slot.port}(?!\d)", "PORT", text)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
