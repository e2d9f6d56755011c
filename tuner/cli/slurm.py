"""`--launcher slurm`: what a SLURM job asks for, and the submission of workers and of other commands as jobs.

Workers are jobs that share the database of a study.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from types import FrameType

from rich.console import Console

from tuner.cli.options import STORAGE_VARIABLE, as_words, load_shown, say
from tuner.devices.found import AbsentDevices, nccl_variables
from tuner.errors import StoreError, StudyError, TunerError, installs
from tuner.export import prepare_study
from tuner.nodes.source import ask_slurm
from tuner.probe import MINUTE_S, Device, DeviceSource, number_of
from tuner.records.urls import checked_url, database_url, shown
from tuner.running.job import Workbench, open_workbench
from tuner.store.database import Database
from tuner.study import SlurmSpec, StudySpec, check_devices

CPU_RANKS = 2
"""The CPU ranks of `devices: cpu` on a node, and of `auto` where a job has no GPU."""


@dataclass(frozen=True, slots=True)
class RunInJob:
    """Runs a command of `tuner` inside a SLURM job; submitit calls it there.

    `scancel` and preemption send the signal TERM: the command ends its probe, stores the trial as interrupted, and
    ends. SLURM sends USR2 before the job's time limit: the command ends in the same way, and with `requeue` the job is
    submitted again.
    """

    words: Sequence[str]
    requeue: bool

    def __call__(self) -> None:
        """Run the command, and end this process with its exit code; its errors are lines in the job's log."""
        from tuner.cli.main import main  # noqa: PLC0415 - this module is part of the command line

        is_out_of_time = False

        def end(number: int, frame: FrameType | None) -> None:
            """End the command as TERM does, and note that the job has no time left."""
            nonlocal is_out_of_time
            is_out_of_time = True
            say("the job reaches its limit of time (`slurm.time_min`)")
            signal.raise_signal(signal.SIGTERM)

        signal.signal(signal.SIGUSR2, end)
        sys.argv = ["tuner", *self.words]
        try:
            main()
        finally:
            if is_out_of_time and self.requeue:
                job = os.environ["SLURM_JOB_ID"]
                try:
                    ask_slurm("scontrol", "requeue", job)
                except TunerError as error:  # the exit code of the command stays
                    say(f"job {job} is not requeued: {error}")


def submit_workers(
    console: Console, study: str, storage: str | None, runs: Path, *, count: int, options: Mapping[str, object]
) -> None:
    """Submit `count` workers and print their job ids; the command then ends, and the jobs go on.

    `options` are those of `tuner worker`.

    Raises TunerError where SLURM is missing or refuses a job; then no job stays in the queue.
    Raises StoreError where the database cannot be opened, or other nodes would not reach it.
    """
    spec = load_shown(console, study)
    folder = (runs / spec.name).resolve()
    url = database_url(storage, folder)
    sbatch_options = resources(spec, str(options.get("devices") or "") or None)
    _check_reach(url, spec.slurm)
    prepare_study(folder)
    with closing(Database(url)):  # makes the schema, and finds a wrong password before any job starts
        pass
    os.environ[STORAGE_VARIABLE] = url  # sbatch passes the environment on, and no list of processes shows it
    words = ["worker", *as_words({**options, "runs": runs.resolve()})]
    jobs = submit(spec, sbatch_options, folder, words, count=count)
    console.print(f"submitted {number_of(count, 'worker')}: job {', '.join(jobs)}; logs in {folder / 'slurm'}")
    console.print(f"`squeue --jobs {','.join(jobs)}` shows the jobs, `tuner status` the study; rerun to add workers")


def resources(spec: StudySpec, devices: str | None) -> Mapping[str, str | int]:
    """Return the options of `sbatch` for a study; `devices` overrides the study's.

    Raises TunerError without SLURM, and StudyError for what no job can have.
    """
    if shutil.which("sbatch") is None:
        raise TunerError("there is no SLURM here: `sbatch` is not found; submit from a login node of the cluster")
    return job_options(spec.slurm, spec.devices_for(devices))


def submit(
    spec: StudySpec, sbatch_options: Mapping[str, str | int], folder: Path, words: Sequence[str], *, count: int = 1
) -> list[str]:
    """Submit `count` jobs that run the same command, `words` after `tuner`, and return the ids of the jobs.

    Their logs are below the study's `folder`. Raises TunerError where SLURM refuses a job; then none stays queued.
    """
    try:
        import submitit  # noqa: PLC0415 - the extra `slurm` brings it
        from submitit.core.utils import FailedJobError, FailedSubmissionError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise TunerError(f"--launcher slurm needs submitit: {installs('slurm')} installs it") from error
    executor = submitit.SlurmExecutor(folder=folder / "slurm")
    executor.update_parameters(
        job_name=f"tuner-{spec.name}",
        time=spec.slurm.time_min,
        setup=list(spec.slurm.setup),
        # SLURM signals so long before the time limit, or a minute earlier (sbatch(1)); the command ends its probe then
        signal_delay_s=min(90, spec.slurm.time_min * MINUTE_S // 4),
        stderr_to_stdout=True,
        # the command runs on the first node only; `--overlap` lets it start watchers on all nodes by `srun`
        srun_args=["--overlap", "--nodes=1", "--ntasks=1"] if spec.slurm.nodes > 1 else [],
        additional_parameters={**sbatch_options, **({"requeue": True} if spec.slurm.requeue else {})},
    )
    jobs: list[str] = []
    try:
        for _ in range(count):
            jobs.append(executor.submit(RunInJob(words, spec.slurm.requeue)).job_id)
    except (FailedJobError, FailedSubmissionError) as error:
        if jobs:  # all jobs or none
            ask_slurm("scancel", *jobs)
        lines = str(error).strip().splitlines() or ["no reason given"]
        reason = next((line for line in lines if "error:" in line), lines[-1])
        raise TunerError(f"SLURM refuses the job: {reason}; change `slurm` in the study file") from error
    return jobs


def _check_reach(url: str, slurm: SlurmSpec) -> None:
    """Raise StoreError where jobs may run on several nodes, and programs on other nodes do not reach the database."""
    parsed = checked_url(url)
    # only programs of this machine reach these hosts
    if parsed.get_backend_name() != "sqlite" and parsed.host not in {None, "", "localhost", "127.0.0.1", "::1"}:
        return
    where = ["--partition", slurm.partition] if slurm.partition else []
    nodes = sum(int(line) for line in ask_slurm("sinfo", "--noheader", "--format=%D", *where).split())
    if nodes > 1:
        raise StoreError(
            f"jobs may run on {nodes} nodes, and only this host safely reaches {shown(url)}; "
            "name a PostgreSQL server that all nodes reach: --storage postgresql+psycopg://USER@HOST/NAME"
        )


def job_bench(study: str, *, devices: str | None, runs: Path) -> Workbench:
    """Return the workbench of a study on the devices of a SLURM job, whatever devices this machine has.

    `devices` are used in place of the study file's.

    Raises StudyError where nothing says how many GPUs a job has, and the errors of `open_workbench`.
    """

    def source_of(spec: StudySpec) -> DeviceSource:
        """Return the devices that a trial has in the job, by name alone."""
        names = device_names(spec.slurm, spec.devices)
        of_trial = names[: spec.devices_of_trial(len(names) // spec.slurm.nodes)]
        return AbsentDevices(tuple(Device(name=name, model="SLURM") for name in of_trial), "slurm")

    bench = open_workbench(study, devices=devices, runs=runs, source_of=source_of)
    cores = bench.spec.slurm.cpus_per_task
    ranks_of_node = ceil(len(bench.devices) / bench.spec.slurm.nodes)
    variables = nccl_variables(bench.spec.environment.nccl_p2p, ())
    if cores and bench.kind == "cpu":  # the ranks of a node share its cores
        variables = {"OMP_NUM_THREADS": str(max(1, cores // ranks_of_node)), **variables}
    return replace(bench, variables={**variables, **bench.spec.environment.variables})


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
