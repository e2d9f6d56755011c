"""The time a rank's device does tensor work, as opposed to waiting for clips or, on a CPU, for other ranks."""

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
        """Wait until the device has done the sections' work, and give its busy seconds so far."""
        ...


class CpuBusyMeter:
    """CPU seconds of the calling thread: blocked in an all-reduce, or off the core, it gathers none.

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
        """Give the busy seconds so far."""
        return self._busy_s


class CudaBusyMeter:
    """Seconds between CUDA events around each section, as the device's stream reached them.

    Waiting for clips lies outside; gaps between kernels and waiting for other ranks inside an all-reduce do not.
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
        """Wait for the device once, and give the busy seconds so far."""
        torch.cuda.synchronize(self._device)
        self._busy_s += sum(start.elapsed_time(end) for start, end in self._sections) / MS_PER_S
        self._sections.clear()
        return self._busy_s


def busy_meter(device: torch.device) -> BusyMeter:
    """Choose the meter for a device."""
    return CudaBusyMeter(device) if device.type == "cuda" else CpuBusyMeter()
