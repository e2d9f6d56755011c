"""Runs a recorded probe (its console log and device samples) through the real watch, window and classifier."""

from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.probe.evidence import Evidence
from tuner.probe.lines import LineSplitter
from tuner.probe.plan import Device, LinePatterns
from tuner.probe.protocols import Line
from tuner.probe.reader import ProgressReader
from tuner.probe.result import ProbeResult
from tuner.probe.run import run
from tuner.probe.stop import never
from tuner.study.spec import ProbeSpec
from tuner.testing.clock import FakeClock
from tuner.testing.devices import Recording, ReplayedSource
from tuner.testing.trainer import ReplayedRecorder, ScriptedTrainer, scripted_plan

LINE_S = 0.05
"""The seconds between two lines of a log, if the times of its lines were not recorded."""


def replay(
    log: Path,
    progress: LinePatterns,
    *,
    recording: Recording | None = None,
    exit_code: int | None = None,
    limits: ProbeSpec | None = None,
) -> ProbeResult:
    """Probe the recorded trainer once more, in no time.

    `exit_code` None: the trainer did not end by itself. Without a `recording` there are no device readings, and the
    lines come `LINE_S` apart.
    """
    clock = FakeClock()
    recording = recording or Recording(devices=_TWO_CPU_RANKS, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    lines = timed_lines(log, progress, recording)
    exit_at_s = None if exit_code is None else max(recording.total_s, lines[-1].t_s)
    trainer = ScriptedTrainer(clock, lines, exit_at_s=exit_at_s, exit_code=exit_code or 0)
    with TemporaryDirectory() as folder:
        return run(
            scripted_plan(Path(folder), recording.devices, limits or ProbeSpec(), progress),
            launch=trainer,
            recorder=ReplayedRecorder(ReplayedSource(recording), recording.samples, clock),
            clock=clock,
            stop=never,
        )


def timed_lines(log: Path, progress: LinePatterns, recording: Recording) -> list[Line]:
    """Return a log's lines with times.

    Marks and the first fatal line have their recorded times. The other lines are spread evenly between them.
    """
    splitter = LineSplitter()
    texts = splitter.feed(log.read_bytes()) + splitter.close()
    anchors = _anchors(texts, progress, recording)
    if not anchors:
        return [Line(t_s=LINE_S * position, text=text) for position, text in enumerate(texts)]
    positions = sorted(anchors)
    times_s = accumulate((_between(position, positions, anchors) for position in range(len(texts))), max)
    return [Line(t_s=t_s, text=text) for t_s, text in zip(times_s, texts, strict=True)]


def _anchors(texts: list[str], progress: LinePatterns, recording: Recording) -> dict[int, float]:
    """Return the positions of the lines whose time is known → the time in seconds."""
    reader = ProgressReader(progress, 0.0)
    marked = [position for position, text in enumerate(texts) if reader.feed(Line(t_s=0.0, text=text))]
    anchors = dict(zip(marked, recording.marks_s, strict=False))
    if recording.error_s is not None:
        evidence = Evidence()
        for position, text in enumerate(texts):
            evidence.feed(text, 0.0)
            if evidence.fatal_t_s is not None:
                anchors[position] = recording.error_s
                break
    return anchors


def _between(position: int, positions: list[int], anchors: dict[int, float]) -> float:
    index = bisect_left(positions, position)
    if index == len(positions):
        return anchors[positions[-1]]
    later = positions[index]
    earlier, start_s = (positions[index - 1], anchors[positions[index - 1]]) if index else (-1, 0.0)
    return start_s + (anchors[later] - start_s) * (position - earlier) / (later - earlier)


_TWO_CPU_RANKS = tuple(Device(name=f"cpu:{rank}", model="recorded CPU") for rank in range(2))
