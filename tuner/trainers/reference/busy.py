"""Measures how long a rank's device does tensor work, without waiting for clips or, on a CPU, for other ranks."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch

MS_PER_S = 1000


class BusyMeter(Protocol):
    """Adds up the work done inside `working()` sections."""

    def working(self) -> AbstractContextManager[None]:
        """Mark a section of tensor work."""
        ...

    def settle(self) -> float:
        """Wait until the device has done the sections' work, and return its busy seconds so far."""
        ...


class CpuBusyMeter:
    """Counts the CPU seconds of the calling thread, which stand still while it waits in an all-reduce or for a core.

    With torch limited to one thread, that thread does all of the rank's tensor work, backward passes included;
    collectives wait in gloo's own threads.
    """

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        self._busy_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark a section of tensor work."""
        start_s = self._cpu_s()
        yield
        self._busy_s += self._cpu_s() - start_s

    def settle(self) -> float:
        """Return the busy seconds so far."""
        return self._busy_s


class CudaBusyMeter:
    """Counts the seconds between CUDA events around each section, as the device's stream reaches them.

    The seconds include gaps between kernels and the wait for other ranks in an all-reduce, but not the wait for clips.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._busy_s = 0.0
        self._sections: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark a section of tensor work, without waiting for it."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        yield
        end.record()
        self._sections.append((start, end))

    def settle(self) -> float:
        """Wait for the device once, and return the busy seconds so far."""
        torch.cuda.synchronize(self._device)
        self._busy_s += sum(start.elapsed_time(end) for start, end in self._sections) / MS_PER_S
        self._sections.clear()
        return self._busy_s


def busy_meter(device: torch.device) -> BusyMeter:
    """Choose the meter for a device."""
    return CudaBusyMeter(device) if device.type == "cuda" else CpuBusyMeter()
