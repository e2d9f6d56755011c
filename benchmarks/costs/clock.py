"""Steps the wall clock below a worker with a running trial, and counts the trials that another process takes from it.

    python -m benchmarks.costs.clock --library /usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1 [--steps 20]

The library is libfaketime. Both processes load it, so their clocks step while they run. They also share a mount
namespace in which the boot time in /proc/stat steps, as it does on a machine whose clock is set. This needs root.
The real clock of the machine stays as it is.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.costs.scale import case_study
from tuner.kept.trial import KeptProbe
from tuner.search.verdict import State, Verdict
from tuner.store.database import Database
from tuner.study.space import launch_digest

MOST_S = 7200
"""The clock is at most so many seconds off."""
LEAST_S = 2
STAT = Path("/proc/stat")
_BOOT_S = re.compile(r"^btime (\d+)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--url")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](options.url)
    elif os.environ.get("STEPPING"):
        with tempfile.TemporaryDirectory() as folder:
            step(Path(folder), options.library, options.steps, options.url or f"sqlite:///{folder}/study.db")
    else:
        words = ["unshare", "--mount", sys.executable, "-m", "benchmarks.costs.clock", *sys.argv[1:]]
        sys.exit(subprocess.run(words, env=os.environ | {"STEPPING": "1"}, check=False).returncode)


def step(folder: Path, library: Path, steps: int, url: str) -> None:
    """Step the clock at every trial of a worker, and once more after the worker has been killed."""
    clock = SteppedClock(folder)
    env = os.environ | {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock.offset), **NO_CACHE}
    with ExitStack() as stack:
        worker, other = (stack.enter_context(Helper(role, url, env)) for role in ROLES)
        taken = moved = 0
        for _ in range(steps):
            asked_s, boot_s = float(worker.answer("ask")), clock.boot_s()
            clock.step()
            taken += int(other.answer("recover"))
            stepped_s, boot_moved_s = float(worker.answer("tell")) - asked_s, clock.boot_s() - boot_s
            moved += abs(boot_moved_s) >= 1
            if abs(stepped_s - boot_moved_s) > 1:
                raise SystemExit(f"the worker's clock moved by {stepped_s} s, its boot time by {boot_moved_s} s")
        worker.answer("ask")
        worker.process.kill()
        worker.process.wait()
        clock.step()
        found = int(other.answer("recover"))
    table = Table(
        "steps of the clock",
        "steps that move a process's start by the wall clock",
        "trials taken from the living worker",
        "of the killed worker, taken back",
        box=box.MARKDOWN,
    )
    table.add_row(*map(str, (steps, moved, taken, found)))
    Console(width=160).print(table)


NO_CACHE = {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}


class SteppedClock:
    """The offset of the wall clock, and the boot time that fits it."""

    def __init__(self, folder: Path) -> None:
        self.offset, self._stat = folder / "offset", folder / "stat"
        self.offset.write_text("+0")
        shutil.copy(STAT, self._stat)
        self._real, self._real_boot_s = self._stat.read_text(), self.boot_s()
        subprocess.run([shutil.which("mount") or "mount", "--bind", self._stat, STAT], check=True)

    def boot_s(self) -> int:
        """Return the Unix time of the boot, as every process of this namespace reads it."""
        found = _BOOT_S.search(STAT.read_text())
        return int(found[1]) if found else 0

    def step(self) -> None:
        """Move the clock to another offset from the real time."""
        offset_s = random.choice([-1, 1]) * random.randint(LEAST_S, MOST_S)
        self.offset.write_text(f"{offset_s:+d}")
        self._stat.write_text(_BOOT_S.sub(f"btime {self._real_boot_s + offset_s}", self._real))


class Helper:
    """A process that does what its standard input says, and answers with a line."""

    def __init__(self, role: str, url: str, env: dict[str, str]) -> None:
        words = [sys.executable, "-m", "benchmarks.costs.clock", "--role", role, "--url", url]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.answer("open")

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def answer(self, command: str) -> str:
        if self.process.stdin is None or self.process.stdout is None:
            raise SystemExit("the helper has no pipes")
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


def work(url: str) -> None:
    """Ask and tell, and answer with the wall clock less the monotonic clock."""
    study = case_study(Database(url))
    asked = None
    for command in sys.stdin:
        if command.strip() == "ask":
            asked = study.ask(None)
        elif asked and command.strip() == "tell":
            record = KeptProbe(status="ok", config=asked.config, digest=launch_digest(asked.config))
            study.tell(asked, Verdict(state=State.COMPLETE, status="ok", value=50.0), record)
        print(time.time() - time.monotonic(), flush=True)


def recover(url: str) -> None:
    """Take back what was dropped, and answer with the number of those trials."""
    study = case_study(Database(url))
    for command in sys.stdin:
        print(study.take_back(Path("none")).to_repeat if command.strip() == "recover" else 0, flush=True)


ROLES = {"work": work, "recover": recover}

if __name__ == "__main__":
    main()
