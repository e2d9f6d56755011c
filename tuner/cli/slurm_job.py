"""What a SLURM job asks for: its GPUs and devices, the options of `sbatch`, and the first lines of a batch script."""

from collections.abc import Iterator

from tuner.errors import StudyError
from tuner.study import SlurmSpec, check_devices

CPU_RANKS = 2
"""The CPU ranks of `devices: cpu` on a node, and of `auto` where a job has no GPU."""


def gpus_of_node(slurm: SlurmSpec, devices: str) -> int:
    """Return how many GPUs of each node a job asks for: `gpus`, or else the number in the study's `devices`.

    The GPUs of this machine are not counted, because the job runs on another. Raises StudyError where neither `gpus`
    nor `devices` says a number, and where `devices` names more GPUs than `gpus`.
    """
    check_devices(devices)
    if slurm.gpus is None and devices == "auto":
        raise StudyError(
            "slurm.gpus is missing, and devices is auto: nothing says how many GPUs a job has; "
            "write `slurm: {gpus: 8}` in the study file, or `devices: cpu:2` for CPU ranks"
        )
    named = _named_gpus(devices)
    if slurm.gpus is None:
        return named
    if slurm.gpus < named and not devices.startswith("auto"):
        raise StudyError(f"slurm.gpus is {slurm.gpus}, and devices {devices} names {named} GPUs; raise slurm.gpus")
    return slurm.gpus


def device_names(slurm: SlurmSpec, devices: str) -> tuple[str, ...]:
    """Return the names of the devices on which a trainer runs in a job: `cuda:0`, … or `cpu:0`, …

    The numbers count from 0 over all nodes of the job: with two nodes of four GPUs, the second node has `cuda:4` to
    `cuda:7`. A job without GPUs has two ranks on each node, unless `devices` says another number. Raises the errors of
    `gpus_of_node`.
    """
    gpus = gpus_of_node(slurm, devices)
    if devices.startswith("cpu"):
        kind, per_node = "cpu", int(devices.partition(":")[2] or CPU_RANKS)  # `cpu:4` or `cpu`
    elif not gpus:
        kind, per_node = "cpu", CPU_RANKS
    else:  # those that `devices` names, otherwise all of the job
        kind, per_node = "cuda", min(_named_gpus(devices) or gpus, gpus)
    return tuple(f"{kind}:{number}" for number in range(slurm.nodes * per_node))


def job_options(slurm: SlurmSpec, devices: str) -> dict[str, str | int]:
    """Return the options of `sbatch` for a study's `devices`, without the leading dashes.

    Raises the errors of `gpus_of_node`.
    """
    gpus = gpus_of_node(slurm, devices)
    options = {
        "partition": slurm.partition,
        "account": slurm.account,
        "nodes": slurm.nodes,
        "ntasks" if slurm.nodes == 1 else "ntasks-per-node": 1,
        "gres": f"gpu:{gpus}" if gpus else None,
        "cpus-per-task": slurm.cpus_per_task,
        "mem": f"{slurm.mem_gb}G" if slurm.mem_gb else None,
        "time": slurm.time_min,
    }
    return {name: value for name, value in options.items() if value is not None}


def script_header(slurm: SlurmSpec, devices: str, name: str) -> Iterator[str]:
    """Yield the first lines of the batch script of a job called `name`: interpreter, options, lines of `setup`."""
    yield "#!/bin/bash"
    for option, value in {"job-name": name, **job_options(slurm, devices)}.items():
        yield f"#SBATCH --{option}={value}"
    yield "# --time is that of a job of the search (slurm.time_min); a training may need more"
    yield from slurm.setup


def _named_gpus(devices: str) -> int:
    """Return how many GPUs a study's `devices` names: 2 for `auto:2` and `4,5`, 0 for `auto` and CPU ranks."""
    if devices.startswith("cpu"):
        return 0
    return int(devices.partition(":")[2] or 0) if devices.startswith("auto") else len(devices.split(","))
