"""What a SLURM job of a worker or of a training asks for. Pure."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from tuner.study.parameter import PositiveInt, Strict, Whole

Word = Annotated[str, StringConstraints(pattern=r"^[\w.,:/@+=-]+$")]
"""Text that stands on a line `#SBATCH --name=text`: without spaces and line breaks."""


class SlurmSpec(Strict):
    """The resources of one SLURM job. A job is one task that sees all its GPUs; the trainer starts its own ranks."""

    gpus: Whole | None = Field(default=None, description="GPUs of a job; default: as many as `devices` names")
    tasks: PositiveInt = Field(default=1, description="tasks of a job: always 1")
    cpus_per_task: PositiveInt | None = Field(default=None, description="CPU cores of a job")
    mem_gb: PositiveInt | None = Field(default=None, description="memory of a job in GB")
    partition: Word | None = Field(default=None, description="the partition to submit to")
    account: Word | None = Field(default=None, description="the account that pays")
    time_min: PositiveInt = Field(default=240, description="the time limit of a job in minutes")
    setup: tuple[str, ...] = Field(default=(), description="shell lines that run first, such as `module load cuda`")
    requeue: bool = Field(default=False, description="submit a job again when its time limit ends it")

    @field_validator("tasks")
    @classmethod
    def _one_task(cls, tasks: int) -> int:
        if tasks > 1:
            raise ValueError(
                "a job is one task that sees all its GPUs, because the trainer starts its own ranks; "
                "raise slurm.gpus instead"
            )
        return tasks

    def options(self, devices: str) -> dict[str, str | int]:
        """Return the options of `sbatch` for a study's `devices`, without the leading dashes.

        Raises ValueError where the job would have fewer GPUs than the study's devices.
        """
        gpus = self.gpus if self.gpus is not None else _named(devices)
        if gpus < (needed := _named(devices)):
            raise ValueError(f"slurm.gpus is {gpus}, and devices {devices} names {needed} GPUs; raise slurm.gpus")
        given = {
            "partition": self.partition,
            "account": self.account,
            "nodes": 1,
            "ntasks": 1,
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


def _named(devices: str) -> int:
    """Return how many GPUs a study's `devices` names: none for `auto` and for CPU ranks."""
    return 0 if devices.startswith(("auto", "cpu")) else len(devices.split(","))
