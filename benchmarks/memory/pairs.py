"""The pairs of a trainer and a condition that `show.py` and `card.py` measure, and a whole run of one."""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).with_name("train.py")
RUNGS = list(dict.fromkeys(round(64 * 1.02**power) for power in range(200)))
PROBED = 35
"""The place of the first size that is probed on the ladder; the second is at twice that place."""
RESULTS = Path("build/memory")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A trainer and a condition, in so much memory."""

    trainer: str
    condition: str
    cap_mib: int
    flags: str = ""
    soak: str = ""
    rungs: Sequence[int] = tuple(RUNGS)
    wait_s: float = 0.05
    steps: int = 900
    """The steps of a whole run; a soak takes at most a tenth of its time."""
    repeats: int = 3
    rivals: Sequence[str] = ("lightning", "accelerate")
    device: str = "cpu:1"
    ladder: str = "batch_size"
    probed: int = PROBED
    samples: int = 1
    """The samples of a step, for each value of the ladder."""
    worse: bool = True
    """Whether the study leaves open that something worse comes after a soak."""
    by_hours: bool = True
    """Whether the promise is for the time of a whole run, instead of its steps."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the trainer."""

    @property
    def name(self) -> str:
        """What the pair is called in tables."""
        provoked = ", not provoked" if self.condition == "lengths" and not self.soak else ""
        return f"{self.trainer}, {self.condition}{provoked}{'' if self.worse else ', told'}"

    @property
    def words(self) -> str:
        """The flags of a usual run."""
        return f"--trainer {self.trainer} --condition {self.condition} --wait-s {self.wait_s} {self.flags}"

    def spec(self, python: str) -> dict[str, Any]:
        """Return the trainer and the cases of the study."""
        command = f"{{python}} {TRAIN} {self.words} --batch-size {{batch_size}} --seed 1"
        if self.device != "cpu:1":
            command += f" --cap-mib {self.cap_mib}"
        return {"trainer": {"name": "command", "python": python, "options": {"command": command}}}

    def short(self) -> "Pair":
        """Return a pair whose runs tell whether every whole run survives: shorter where the worst is provoked."""
        worst = "--longest-first" if self.condition == "lengths" else self.soak
        return replace(self, flags=f"{self.flags} {worst}", steps=self.steps // 10) if worst else self

    def whole(self, python: str, size: int, seed: int, folder: Path, more: str = "") -> dict[str, Any]:
        """Run a whole training; return what it says of itself."""
        return whole(python, self, size, seed, folder, more)


RARELY, OFTEN = "--every 100", "--every 2"
BUFFER = Pair(trainer="loop", condition="buffer", cap_mib=312, flags="--grow-kib 17")
CPU = [
    Pair(trainer="loop", condition="evaluation", cap_mib=350, flags=RARELY, soak=OFTEN),
    BUFFER,
    replace(BUFFER, worse=False, by_hours=False, rivals=()),
    Pair(trainer="loop", condition="lengths", cap_mib=350, soak="--longest-first"),
    Pair(trainer="accelerate", condition="lengths", cap_mib=360),
    Pair(trainer="accelerate", condition="checkpoints", cap_mib=380, flags=f"{RARELY} --state-mib 8", soak=OFTEN),
    Pair(trainer="lightning", condition="evaluation", cap_mib=430, flags=RARELY, soak=OFTEN),
]


def command(python: str, pair: Pair, size: int, seed: int, told: Path, more: str = "") -> list[str]:
    """Return the command of a whole run."""
    words = f"{pair.words} --cap-mib {pair.cap_mib} --batch-size {size} --seed {seed} --steps {pair.steps} {more}"
    return [python, str(TRAIN), *shlex.split(words), "--told", str(told)]


def whole(
    python: str, pair: Pair, size: int, seed: int, folder: Path, more: str = "", limit_s: float = 900.0
) -> dict[str, Any]:
    """Run a whole training; return what it says of itself."""
    told = folder / f"{seed}-{size}.json"
    told.unlink(missing_ok=True)
    log = told.with_suffix(".log")
    with log.open("w") as output:
        subprocess.run(
            command(python, pair, size, seed, told, more),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=limit_s,
        )
    return json.loads(told.read_text()) if told.exists() else {"error": log.read_text()[-300:], "steps": 0}
