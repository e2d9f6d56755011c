"""What a SLURM job of a worker or of a training asks for. Pure."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import StringConstraints

from tuner.errors import StudyError
from tuner.study.parameter import DEVICES, IN_WORDS, PositiveInt, Strict, Whole

Word = Annotated[str, StringConstraints(pattern=r"^[\w.,:/@+=-]+$")]
"""Text that stands on a line `#SBATCH --name=text`: without spaces and line breaks."""

CPU_RANKS = 2
"""The CPU ranks of `devices: cpu`, and of `auto` where there is no card."""


class SlurmSpec(Strict):
    """The resources of one SLURM job. Its task on each node sees the GPUs of the node, and starts the ranks."""

    nodes: PositiveInt = 1
    """nodes of a job; a trial runs on all of them, or on as many as the parameter `nodes` says"""
    gpus: Whole | None = None
    """GPUs of a node; needed with `devices: auto`"""
    cpus_per_task: PositiveInt | None = None
    """CPU cores of a node"""
    mem_gb: PositiveInt | None = None
    """memory of a node in GB"""
    partition: Word | None = None
    """partition of the job"""
    account: Word | None = None
    """account to charge"""
    time_min: PositiveInt = 240
    """time limit of a job in minutes"""
    setup: tuple[str, ...] = ()
    """shell lines that run first, such as `module load cuda`"""
    requeue: bool = False
    """submit a job again when its time limit ends it"""

    def gpus_for(self, devices: str) -> int:
        """Return the GPUs of each node that a job asks for; the machine that submits the job may have others, or none.

        Raises StudyError where neither `gpus` nor the study's `devices` says how many, and where `devices` names more.
        """
        if not re.fullmatch(DEVICES, devices):
            raise StudyError(f"devices {devices!r} {IN_WORDS[DEVICES]}")
        if self.gpus is None and devices == "auto":
            raise StudyError(
                "slurm.gpus is missing, and devices is auto: nothing says how many GPUs a job has; "
                "write `slurm: {gpus: 8}` in the study file, or `devices: cpu:2` for CPU ranks"
            )
        gpus, named = self.gpus, _gpus_by_index(devices)
        if gpus is None:
            return named or _gpus_by_number(devices)
        if gpus < named:
            raise StudyError(f"slurm.gpus is {gpus}, and devices {devices} names {named} GPUs; raise slurm.gpus")
        return gpus

    def device_names(self, devices: str) -> tuple[str, ...]:
        """Return the devices on which a trainer runs in a job: `cuda:0`, … or `cpu:0`, …; errors as of `gpus_for`.

        Inside the job, CUDA numbers the job's cards from 0. A job without cards that names none has two CPU ranks.
        """
        gpus = self.gpus_for(devices)
        if devices.startswith("cpu") or not gpus:
            ranks = int(devices.partition(":")[2] or CPU_RANKS) if devices.startswith("cpu") else CPU_RANKS
            return tuple(f"cpu:{rank}" for rank in range(self.nodes * ranks))
        cards = _gpus_by_index(devices) or min(_gpus_by_number(devices) or gpus, gpus)
        return tuple(f"cuda:{card}" for card in range(self.nodes * cards))

    def options(self, devices: str) -> dict[str, str | int]:
        """Return the options of `sbatch` for a study's `devices`, without the leading dashes.

        Raises the errors of `gpus_for`.
        """
        gpus = self.gpus_for(devices)
        given = {
            "partition": self.partition,
            "account": self.account,
            "nodes": self.nodes,
            **({"ntasks": 1} if self.nodes == 1 else {"ntasks-per-node": 1}),
            "gres": f"gpu:{gpus}" if gpus else None,
            "cpus-per-task": self.cpus_per_task,
            "mem": f"{self.mem_gb}G" if self.mem_gb else None,
            "time": self.time_min,
        }
        return {name: value for name, value in given.items() if value is not None}

    def header(self, devices: str, name: str) -> Iterator[str]:
        """Yield the first lines of a batch script: its interpreter, its options, the lines of `setup`."""
        yield "#!/bin/bash"
        for option, value in {"job-name": name, **self.options(devices)}.items():
            yield f"#SBATCH --{option}={value}"
        yield from self.setup


def _gpus_by_index(devices: str) -> int:
    """Return how many GPUs a study's `devices` names by their indices: 0 for `auto` and for CPU ranks."""
    return 0 if devices.startswith(("auto", "cpu")) else len(devices.split(","))


def _gpus_by_number(devices: str) -> int:
    """Return how many GPUs `auto:CARDS` wants; 0 for all other forms of a study's `devices`."""
    return int(devices.partition(":")[2] or 0) if devices.startswith("auto") else 0
