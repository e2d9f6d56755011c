"""Measures all planned runs, and keeps the results after each of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tuner.errors import DeviceError, OutputError, TrainerError, TunerError
from tuner.probe.kinds import Blame, FailureKind
from tuner.scaling.measuring import Measured, Measuring
from tuner.scaling.planning import Run
from tuner.scaling.results import Point, Results, read, write

MOST_FAILURES = 3
"""After this many failed runs without a measurement before, no other run is tried."""

Tell = Callable[[Run, list[Point]], None]


def measure_all(
    measuring: Measuring,
    runs: Iterable[Run],
    subjects: Mapping[str, Measured],
    results: Results,
    *,
    path: Path,
    tell: Tell,
) -> Results:
    """Measure the runs, write all results so far to `path` after each run, and return them.

    `tell` gets each run with its points. An interrupted run ends the work without an error.
    Raises TunerError when a card is lost or busy, or when no run can succeed. The message says where the results so far
    are.
    """
    try:
        for run in runs:
            points = measuring.measure(run, subjects[run.subject])
            if any(one.failure is FailureKind.INTERRUPTED for one in points):
                break
            results = results.with_points(*points)
            write(results, path)
            tell(run, points)
            _check(points, results)
    except TunerError as error:
        if not results.points:
            raise
        raise type(error)(
            f"{error}; {len(results.points)} measurement(s) are kept in {path}; with --out {path} the "
            "same command goes on"
        ) from error
    return results


def begun(path: Path, blank: Results) -> Results:
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
    subjects = {one.name: one for one in (*blank.subjects, *earlier.subjects)}
    for one in blank.subjects:
        if subjects[one.name] != one:
            raise OutputError(
                f"{path} holds results of another {one.name}, and they are kept; name another file with --out. There: "
                f"{subjects[one.name].text}; here: {one.text}"
            )
    failed = {_run_of(one) for one in earlier.points if one.failure}
    return replace(
        earlier,
        subjects=tuple(subjects.values()),
        points=tuple(one for one in earlier.points if _run_of(one) not in failed),
    )


def _run_of(point: Point) -> tuple[object, ...]:
    return (point.workload, point.size, point.mode, point.route, point.beside)


def missing(runs: Iterable[Run], results: Results) -> list[Run]:
    """Return the runs that have not been measured yet, in their order. A run may be planned more than once."""
    made = Counter((*_run_of(one), one.gpus) for one in results.points)
    left: list[Run] = []
    for run in runs:
        keys = [(run.subject, run.size, run.mode, team.route, len(run.teams), team.gpus) for team in run.teams]
        if any(made[key] < 1 for key in keys):
            left.append(run)
        made.subtract(keys)
    return left


def _check(points: list[Point], results: Results) -> None:
    """Raise an error where a failure leaves no hope for other runs: a card is not there, or nothing has ever run."""
    nothing_ran = not any(one.samples_per_s for one in results.points)
    for one in points:
        kind = one.failure
        if kind is None:
            continue
        remedy = kind.remedy or "read the console.log of the probe"
        if kind is FailureKind.GPU_LOST:
            raise DeviceError(f"{one.workload}: {one.detail}; {remedy}")
        if kind is FailureKind.GPU_BUSY:
            raise DeviceError(f"{one.workload}: {one.detail}; wait for the other program, or measure with --shared")
        if nothing_ran and (kind.blame is Blame.SETUP or len(results.points) >= MOST_FAILURES):
            raise TrainerError(f"{one.workload}: {kind}: {one.detail}; {remedy}")
