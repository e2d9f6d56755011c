"""Plans the runs of `tuner scale`, measures them, and keeps the results after each of them.

A subject is what is measured: a built-in workload, or a case of a study. A rank is a process of a program, on a device
of its own. The ranks of one program are a team. A run measures a subject with one team, or with several side by side,
and gives a point for each team. A route is how data goes between ranks. A session is a started program that serves
several runs.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tuner import probe
from tuner.devices.cpu import usable_cores
from tuner.devices.found import NO_P2P, Link, device_variables
from tuner.errors import DeviceError, OutputError, StudyError, TrainerError, TunerError
from tuner.export import in_words
from tuner.running.job import Workbench
from tuner.running.prober import run_in
from tuner.study import LADDER, Case, Config, ProbeSpec, TrainerSpec
from tuner.tools.scaling.results import COUNTS, LINKS, Measurement, Mode, Results, Route, Subject, read, write
from tuner.trainers.base import Trainer, iterations, own_plan
from tuner.trainers.reference.reference_trainer import ReferenceTrainer


class CardTeam(NamedTuple):
    """The ranks of one program."""

    gpus: tuple[int, ...]
    """Positions in the list of the machine's devices."""
    route: Route | None = None
    """How the ranks exchange data; None for a single rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredSubject:
    """A subject, what is to be measured of it, and how it is launched."""

    subject: Subject
    sizes: tuple[int | None, ...]
    """The sizes to measure; None for a subject without sizes."""
    plan: Callable[[int | None, probe.Slot], probe.ProbePlan]
    """Returns how the subject is launched in a size, on the devices of a slot."""
    limits: ProbeSpec
    """How long a run is measured."""
    only_links: bool = False
    """Whether it measures the links alone: a single rank has nothing to do, and a step is one sample of each rank."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that the study sets for its probes."""

    @property
    def name(self) -> str:
        """The name of the subject."""
        return self.subject.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One measurement of a subject in one size and mode. Its teams run at the same time."""

    subject: MeasuredSubject
    size: int | None
    mode: Mode
    teams: tuple[CardTeam, ...]


def counts(requested: Sequence[int] | None, visible: int) -> tuple[int, ...]:
    """Return the numbers of GPUs to measure, in ascending order: the `requested` ones, or else the usual `COUNTS`.

    The usual ones end at the number of `visible` GPUs. 1 is always among the numbers, because it is the baseline.
    """
    return tuple(sorted({1, *(requested or [count for count in COUNTS if count <= visible])}))


def nodes_of(count: int, per_node: int | None) -> int:
    """Return how many nodes `count` devices need, where a node has `per_node`; None means that one machine has all.

    Raises DeviceError where one node would have fewer devices than another.
    """
    nodes = math.ceil(count / per_node) if per_node else 1
    if count % nodes:
        problem = f"{count} devices leave a node with fewer than another"
        more = count + -count % nodes  # the next multiple of `nodes`
        raise DeviceError(f"{problem}; name {more} for {nodes} nodes, or up to {per_node}")
    return nodes


P2P_LEVEL = "NCCL_P2P_LEVEL"
"""The environment variable with the largest distance at which NCCL uses direct access; `LOC` and `0` forbid it."""
NO_HOST = "NCCL_SHM_DISABLE"
"""The environment variable that forbids NCCL the host's memory; then NCCL takes the network in its place."""


def routes(
    links: Sequence[Link], *, on_gpu: bool, over_nodes: bool = False, variables: Mapping[str, str] | None = None
) -> tuple[Route, ...]:
    """Return the routes to measure between the ranks of a machine, the fastest first.

    The route `nccl` leaves the choice to NCCL: over several nodes, and where the variables rule out the other routes
    or limit direct access to a distance. `variables` are those of the environment and of the study.
    """
    if not on_gpu:
        return ("gloo",)
    if over_nodes:
        return ("nccl",)
    variables = variables or {}
    level = variables.get(P2P_LEVEL)
    slowest: tuple[Route, ...] = () if variables.get(NO_HOST) == "1" else ("host",)
    if any(link.p2p is False for link in links) or variables.get(NO_P2P) == "1" or level in {"LOC", "0"}:
        return slowest or ("nccl",)
    if links and all(link.nvlink for link in links):
        return ("nvlink", *slowest)
    return ("nccl" if level else "p2p", *slowest)  # where the links are unknown, PCIe is assumed


def variables_of_trainers(bench: Workbench | None) -> dict[str, str]:
    """Return the environment variables of a study's trainers: those of this process, the command and the study."""
    spec = bench.spec if bench else None
    of_command = spec.trainer.options.get("env") or {} if spec and spec.trainer.name == "command" else {}
    return {**os.environ, **of_command, **(spec.environment.variables if spec else {})}


def nccl_limits(variables: Mapping[str, str]) -> str:
    """Return the variables that limit NCCL's routes, with their values; empty without any."""
    limiting = {NO_P2P: "1", P2P_LEVEL: variables.get(P2P_LEVEL), NO_HOST: "1"}
    return " ".join(f"{name}={value}" for name, value in limiting.items() if value and variables.get(name) == value)


def scaling_runs(
    subjects: Sequence[MeasuredSubject], counts: Sequence[int], routes: Sequence[Route], *, beside: bool = True
) -> Iterator[Run]:
    """Yield the measurements of weak and strong scaling.

    All runs of the same teams come one after another, because other teams need new programs.

    Args:
        subjects: What is measured.
        counts: The numbers of GPUs, 1 first.
        routes: The ways between the ranks.
        beside: Whether several programs are also measured side by side, a rank each.
    """

    def runs(mode: Mode, *teams: CardTeam) -> Iterator[Run]:
        """Yield a run of these teams for each subject and size. Only `joined` ranks can measure links."""
        for subject in subjects:
            if mode == "joined" or not subject.only_links:
                for size in _sizes(subject, counts):
                    yield Run(subject=subject, size=size, mode=mode, teams=teams)

    yield from runs("single", CardTeam(gpus=(0,)))
    for count in counts[1:]:
        if beside:
            yield from runs("beside", *(CardTeam(gpus=(card,)) for card in range(count)))
        for route in routes:
            yield from runs("joined", CardTeam(gpus=tuple(range(count)), route=route))


def _sizes(subject: MeasuredSubject, counts: Sequence[int]) -> Sequence[int | None]:
    """Return the sizes of a subject to measure, in ascending order; None alone for a subject without sizes.

    These are the requested sizes, and the largest divided by each number of devices: with that, all devices
    together have the largest size on one device, as strong scaling needs it. Links alone have no such share.
    """
    sizes = {size for size in subject.sizes if size is not None}
    if not sizes:
        return [None]
    if not subject.only_links:
        sizes |= {max(sizes) // count for count in counts if max(sizes) >= count}
    return sorted(sizes)


class Measuring:
    """Measures runs, one after another. The programs of a run stay for later runs; `close` ends them."""

    def __init__(
        self,
        devices_at: Callable[[Sequence[int]], probe.DeviceSource],
        *,
        open_prober: Callable[[probe.DeviceSource], probe.Prober],
        folder: Path,
        per_node: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Measure how a training scales on the devices of a machine.

        Args:
            devices_at: Returns the devices at some positions in the list of the machine's devices.
            open_prober: Returns what starts and follows programs on some devices.
            folder: Takes the files of the runs.
            per_node: The devices of a node; None where one machine has all.
            interrupted: Returns whether the user wants to stop.
        """
        self._devices_at, self._per_node = devices_at, per_node
        self._open_prober = open_prober
        self._folder = folder
        self._interrupted = interrupted
        self._open: dict[CardTeam, tuple[probe.DeviceSource, probe.Prober]] = {}
        """Each team whose program may still be open → its devices, and what runs programs on them."""

    def measure(self, run: Run) -> list[Measurement]:
        """Measure a run, and return a point for each of its teams.

        Raises DeviceError when a card does not answer, TrainerError where the trainer cannot be launched or counts no
        samples, and OutputError when a file cannot be written.
        """
        if self._open.keys() != set(run.teams):  # programs of the last run serve a run of the same teams
            self.close()
            for team in run.teams:
                devices = self._devices_at(team.gpus)
                self._open[team] = devices, self._open_prober(devices)
        together = _Together(len(run.teams), run.subject.limits.window_seconds, self._interrupted)
        with ThreadPoolExecutor(len(run.teams)) as pool:
            results = pool.map(partial(self._probe, run, together), range(len(run.teams)))
        return [_point(run, team, result) for team, result in zip(run.teams, results, strict=True)]

    def close(self) -> None:
        """End all started programs and wait for them."""
        for _, prober in self._open.values():
            prober.close()
        self._open = {}

    def _probe(self, run: Run, together: "_Together", place: int) -> probe.ProbeResult:
        """Return what the probe of one team of a run measured; `place` is the team's position among the teams."""
        subject, team = run.subject, run.teams[place]
        source, prober = self._open[team]
        folder = self._folder / "-".join(map(str, filter(None, (subject.name, run.size, run.mode, team.route))))
        variables: dict[str, str] = {}  # over nodes, each watcher adds those of its devices
        if not self._per_node:
            variables = {**device_variables(source.devices)}
            # with threads for all cores each, programs slow each other down
            if run.mode == "beside" and probe.THREADS not in os.environ:
                variables[probe.THREADS] = str(max(1, usable_cores() // len(run.teams)))
        slot = probe.Slot(
            devices=source.devices,
            out_dir=folder,
            limits=subject.limits,
            variables={**variables, **subject.variables, **({NO_P2P: "1"} if team.route == "host" else {})},
            nodes=nodes_of(len(team.gpus), self._per_node),
        )
        try:
            return run_in(slot, partial(subject.plan, run.size), lambda plan: prober(plan, together.stop(place)))
        finally:
            together.ended(place)


class _Together:
    """Keeps the probes of one run going until each has a long and steady window, so that none works alone for long.

    A window is steady once the standard error of its speed is small. The first iterations of a script are often slower
    than later ones, so a longer window has a smaller error.
    """

    def __init__(self, probes: int, window_s: float, interrupted: Callable[[], bool]) -> None:
        self._windows_s = [0.0] * probes
        """The seconds of each probe's window; 0 until it is steady, infinite when the probe is over."""
        self._window_s = window_s
        self._interrupted = interrupted

    def ended(self, place: int) -> None:
        """Note that the probe at this place is over, so that no other probe waits for it."""
        self._windows_s[place] = math.inf

    def stop(self, place: int) -> probe.Stop:
        """Return the function that the probe at this place asks again and again whether it goes on."""

        def answer(so_far: probe.ProbeResult | None) -> probe.Answer:
            """Return what this probe does next, by its result so far.

            `MORE` keeps it going beyond its usual iterations, while any probe lacks a long and steady window. With
            `GO`, it ends after its usual iterations.
            """
            if self._interrupted():
                return probe.Answer(probe.Next.INTERRUPTED)
            if so_far is None:  # no window yet
                return probe.Answer(probe.Next.GO)
            window_s = so_far.window_s or 0.0
            # the standard error of the speed is at most a tenth of the speed (chosen), or unknown
            is_steady = (so_far.samples_per_s_se or 0.0) <= 0.1 * (so_far.samples_per_s or 0.0)
            # what is not steady after four windows will hardly be (chosen)
            is_enough = is_steady or window_s >= 4.0 * self._window_s
            self._windows_s[place] = window_s if is_enough else 0.0
            return probe.Answer(probe.Next.GO if min(self._windows_s) >= self._window_s else probe.Next.MORE)

        return answer


def _point(run: Run, team: CardTeam, result: probe.ProbeResult) -> Measurement:
    """Return what the probe of one team measured. Raises TrainerError where it has trained and counted no samples."""
    point = Measurement(
        workload=run.subject.name,
        size=run.size,
        mode=run.mode,
        gpus=team.gpus,
        route=team.route,
        beside=len(run.teams),
        window_s=result.window_s,
        devices=result.devices,
    )
    if result.failure:
        return replace(point, failure=result.failure.kind, detail=result.failure.detail)
    if not result.samples_per_s:
        problem = f"{run.subject.name}: the trainer counts no samples, so nothing can be compared"
        raise TrainerError(f"{problem}; let its progress report samples")
    samples_per_step = None  # unknown where the probe does not count steps
    if run.subject.only_links:
        samples_per_step = len(team.gpus)
    elif result.iterations_per_s:  # of both speeds, because a trainer may report only some of its steps
        samples_per_step = result.samples_per_s / result.iterations_per_s
    return replace(
        point,
        samples_per_s=result.samples_per_s,
        samples_per_s_se=result.samples_per_s_se,
        samples_per_step=samples_per_step,
    )


def measure_all(
    measuring: Measuring,
    runs: Iterable[Run],
    results: Results,
    *,
    path: Path,
    show: Callable[[list[Measurement]], None],
) -> Results:
    """Measure runs, and return the results with their measurements; after each run, all results are written.

    An interrupted run ends the work without an error.

    Args:
        measuring: Measures a run.
        runs: The runs to make, in this order.
        results: The results of earlier calls.
        path: The file of the results.
        show: Gets the measurements of each run once it has ended.

    Raises:
        TunerError: A card is lost or busy, or no run can succeed. The message names the file of the results so far.
    """
    try:
        for run in runs:
            points = measuring.measure(run)
            if any(point.failure is probe.FailureKind.INTERRUPTED for point in points):
                break
            results = replace(results, points=(*results.points, *points))
            write(results, path)
            show(points)
            _check_others_can_succeed(points, results)
    except TunerError as error:
        if not results.points:
            raise
        kept = probe.number_of(len(results.points), "measurement")
        raise type(error)(f"{error}; {path} keeps {kept}; rerun with --out {path} to resume") from error
    return results


def earlier_results(path: Path, blank: Results) -> Results:
    """Return the results to go on from: those that an earlier call wrote to `path`, or else `blank`.

    Runs that failed are left out, so they are tried again. Raises TunerError where the file cannot be read, and
    OutputError where it holds results of other devices or of another subject with the same name.
    """
    if not path.exists():
        return blank
    earlier = read(path)
    for name in ("devices", "machine", "links"):
        before, now = getattr(earlier, name), getattr(blank, name)
        if before != now:
            raise OutputError(
                f"{path} holds results of another machine, and they are kept; name another file with --out. {name} "
                f"there: {before}; here: {now}"
            )
    subjects = {subject.name: subject for subject in (*blank.subjects, *earlier.subjects)}
    for subject in blank.subjects:
        if subjects[subject.name] != subject:
            raise OutputError(
                f"{path} holds results of another {subject.name}, and they are kept; name another file with --out. "
                f"There: {subjects[subject.name].text}; here: {subject.text}"
            )
    failed = {_run_of(point) for point in earlier.points if point.failure}  # all teams of such a run are measured again
    return replace(
        earlier,
        subjects=tuple(subjects.values()),
        points=tuple(point for point in earlier.points if _run_of(point) not in failed),
    )


def _run_of(point: Measurement) -> tuple[object, ...]:
    """Return what identifies the run that measured a point: equal for the points of one run only."""
    return (point.workload, point.size, point.mode, point.route, point.beside)


def missing_runs(runs: Iterable[Run], results: Results) -> list[Run]:
    """Return the runs that have not been measured yet, in their order."""
    made = {(*_run_of(point), point.gpus) for point in results.points}

    def is_made(run: Run) -> bool:
        """Return whether each team of a run has a point."""
        keys = ((run.subject.name, run.size, run.mode, team.route, len(run.teams), team.gpus) for team in run.teams)
        return made.issuperset(keys)

    return [run for run in runs if not is_made(run)]


def _check_others_can_succeed(points: list[Measurement], results: Results) -> None:
    """Raise an error where the failure of a run shows that the other runs will fail, too.

    1. A card is lost, or another program uses it.
    2. No run has succeeded yet, and this failure is one of the set-up, or the third failure.

    Args:
        points: The points of the run.
        results: All results so far, with those of the run.
    """
    nothing_ran = not any(point.samples_per_s for point in results.points)
    for point in points:
        kind = point.failure
        if kind is None:
            continue
        remedy = kind.remedy or "read the console.log of the probe"
        if kind is probe.FailureKind.GPU_LOST:  # 1
            raise DeviceError(f"{point.workload}: {point.detail}; {remedy}")
        if kind is probe.FailureKind.GPU_BUSY:  # 1
            raise DeviceError(f"{point.workload}: {point.detail}; wait for the other program")
        if nothing_ran and (kind.blame is probe.Blame.SETUP or len(results.points) >= 3):  # 2
            raise TrainerError(f"{point.workload}: {kind}: {point.detail}; {remedy}")


NAMES = ("ppo", LINKS)
"""The names of the built-in workloads."""


def built_in_subject(name: str, *, gpu: bool, window_s: float, sizes: tuple[int, ...] | None) -> MeasuredSubject:
    """Return a built-in workload as a subject. Raises StudyError for an unknown name.

    A run of a built-in workload always has a size. Only the size of a study's workload may be None, so the `or 1` in
    the plans below is there for the type alone.

    Args:
        name: One of `NAMES`.
        gpu: Whether the devices are GPUs.
        window_s: The seconds for which a run is measured.
        sizes: The sizes to measure; None for those that suit the devices.
    """
    limits = ProbeSpec(iterations=6, min_iterations=4, window_seconds=window_s, max_seconds=window_s + 120)
    match name:
        case "ppo":
            text, unit = "trains a controller with PPO: the reference trainer", "environments per GPU"
            trainer, case = ReferenceTrainer(TrainerSpec(name="reference")), Case(name="deepmimic_pi_plus_ppo")
            return MeasuredSubject(
                subject=Subject(name=name, text=text, unit=unit),
                sizes=sizes or ((2048, 4096) if gpu else (32, 64)),
                plan=lambda size, slot: _trainer_plan(trainer, case, {LADDER: size or 1}, slot),
                limits=limits,
            )
        case "allreduce":
            small, large = (1 << 12, 1 << 18, 1 << 22), (1 << 25, 1 << 28)
            return MeasuredSubject(
                subject=Subject(name=name, text="sums a buffer over all ranks, to measure the links", unit="bytes"),
                sizes=sizes or ((*small, *large) if gpu else small),
                plan=lambda size, slot: links_plan(size or 1, slot),
                limits=limits,
                only_links=True,
            )
    raise StudyError(f"workload {name!r} is unknown; known: {', '.join(NAMES)}")


def links_plan(size_bytes: int, slot: probe.Slot) -> probe.ProbePlan:
    """Return the plan of a run of all-reduces. One session serves all sizes, so that its start is paid once."""
    config: Config = {"bytes": size_bytes}
    planned = own_plan(sys.executable, ("tuner.trainers.reference.all_reduce",), config, slot, session_key=LINKS)
    return replace(planned, request={"config": config, "iterations": iterations(slot)})


def _trainer_plan(trainer: Trainer, case: Case, config: Config, slot: probe.Slot) -> probe.ProbePlan:
    """Return how a config of a case is launched: in a session where the study and the trainer have one."""
    warm = trainer.warm_plan(case, config, slot) if slot.limits.warm else None
    return warm or trainer.plan(case, config, slot)


def subject_of_study(bench: Workbench, case: Case, config: Config, sizes: tuple[int, ...] | None) -> MeasuredSubject:
    """Return a case of a study with one config, to be measured at some `sizes`, which are values of `num_envs`.

    Without `sizes`, it is measured with the config's own value. Raises StudyError where `sizes` are given, and the
    trainer has no `num_envs`.
    """
    has_sizes = LADDER in bench.trainer.accepts
    if sizes and not has_sizes:
        raise StudyError(f"--sizes are values of {LADDER}, which {bench.trainer.name} does not vary; leave them out")
    own_size = config.get(LADDER)
    fixed = {name: value for name, value in config.items() if name != LADDER}
    settings = f" with {in_words(fixed)}" if fixed else ""
    text = f"case of the study {bench.spec.name}, trained by {bench.trainer.name}{settings}"
    return MeasuredSubject(
        subject=Subject(name=case.name, text=text, unit="environments per GPU" if has_sizes else ""),
        sizes=sizes or ((own_size,) if isinstance(own_size, int) else (None,)),
        plan=lambda size, slot: _trainer_plan(
            bench.trainer, case, config if size is None else {**config, LADDER: size}, slot
        ),
        limits=bench.spec_for(case).probe,
        variables=bench.spec.environment.variables,
    )
