"""What each fault must come to, and a probe of it with real processes."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.devices.cpu import CpuSource
from tuner.errors import TunerError
from tuner.probe.clock import MonotonicClock
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.process import Launcher
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import FailureKind, ProbeResult
from tuner.probe.run import run
from tuner.study.spec import ProbeSpec
from tuner.testing.faulty.strikes import FLOOD_BYTES
from tuner.units import BYTES_PER_MIB

OK = "ok"
ITERATIONS = 16
TRAINER_ITERATIONS = 20
BRISK = {"iterations": ITERATIONS, "window_seconds": 0.1, "start_up_silence_seconds": 5, "silence_seconds": 1.5}
"""Limits for iterations of 20 ms, some hundred times as fast as a real trainer's."""
"""A probe's own limits shrink with its iterations: 20 ms here, seconds in a real trainer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A fault, what a probe of it must give, and limits to the scale of the fault."""

    expected: str = OK
    """`ok`, the kind of the failure, or the name of the error raised."""
    says: str = ""
    """Part of the failure's detail."""
    iteration_s: float = 0.02
    limits: ProbeSpec = ProbeSpec()
    full_disk: bool = False
    """Whether the log lies on a disk without room."""
