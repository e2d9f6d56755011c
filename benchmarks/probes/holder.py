"""A process that takes the memory of a card."""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from tuner.probe.probe_plan import Device

TAKES = """
import sys, torch
left_mib = int(sys.argv[1])
torch.zeros(1, device="cuda")
print("ready", flush=True)
sys.stdin.readline()
held = []
for mib in (4096, 512, 64, 16):
    while torch.cuda.mem_get_info()[0] > (mib + left_mib) * 2**20:
        held.append(torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda"))
print("full", flush=True)
sys.stdin.readline()
"""


class Holder:
    """A process that fills a card on request. As a context manager it frees the card at the end."""

    def __init__(self, device: Device, left_mib: int) -> None:
        """Start the process. It has a CUDA context of its own and holds no memory yet."""
        assert device.uuid is not None  # noqa: S101 - a CPU has no memory of its own to take
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKES, str(left_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": device.uuid},
        )
        self.pid = self._process.pid
        self._full = False
        self._expect("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self) -> None:
        """Take the free memory of the card, once."""
        if not self._full:
            self._say()
            self._expect("full")
            self._full = True

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        if self._process.stdout.readline().strip() != word:
            sys.exit("the card's memory could not be taken")
