"""Measures all planned runs, and keeps the results after each of them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tuner.errors import DeviceError, TrainerError, TunerError
from tuner.probe.kinds import Blame, FailureKind
from tuner.scaling.measuring import Measured, Measuring
from tuner.scaling.planning import Run
from tuner.scaling.results import Point, Results, write

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
        raise type(error)(f"{error}; {len(results.points)} measurement(s) are kept in {path}") from error
    return results


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
