"""What one probe shows about its study file: the lines that matched, and what to change."""

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.probe.lines import LineSplitter
from tuner.probe.metrics import error, target_error, value
from tuner.probe.notes import NO_RATE
from tuner.probe.plan import ProbePlan
from tuner.probe.protocols import Line
from tuner.probe.reader import ProgressReader
from tuner.probe.result import ProbeResult
from tuner.study.spec import StudySpec

SHOWN = 3
_WIDTH = 140


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """The lines of a probe's output, and those that matched a pattern of `progress`."""

    printed: int
    matched: int
    shown: tuple[str, ...]
    """The last lines that matched, or the last lines of all where none matched."""


def matched(plan: ProbePlan) -> Matched:
    """Read the output of a probe that has ended, and compare it with the patterns of its plan."""
    try:
        output = plan.slot.console.read_bytes()
    except OSError:
        output = b""
    splitter = LineSplitter()
    texts = [*splitter.feed(output), *splitter.close()]
    reader = ProgressReader(plan.progress, 0.0)
    hits: list[str] = []
    for text in texts:
        before = reader.matched
        reader.feed(Line(t_s=0.0, text=text))
        if reader.matched > before:
            hits.append(text)
    shown = (hits or texts)[-SHOWN:]
    return Matched(printed=len(texts), matched=len(hits), shown=tuple(text.strip()[-_WIDTH:] for text in shown))


def _place(plan: ProbePlan) -> str:
    """Return where a study says how the trainer counts its samples."""
    return "the key `samples` to `progress_file`" if plan.progress_file else "the group (?P<samples>…) to `progress`"


def advice(spec: StudySpec, plan: ProbePlan, result: ProbeResult, cards: int) -> Iterator[str]:
    """Yield what to change in a study file whose probe ran, on a machine with so many cards."""
    limits = spec.probe
    if result.samples_per_s is None and not any(NO_RATE in note for note in result.notes):
        yield (
            f"no samples were counted, so samples/s are unknown: add {_place(plan)}, or `samples_per_iteration` to the "
            "options"
        )
    if len(plan.slot.devices) == 1 < cards:
        yield f"1 of {cards} cards was used: if the command can start more ranks, name `devices` and use {{ranks}}"
    for name in spec.objectives:
        number, known = value(result, name), error(result, name)
        if number is None:
            yield f"{name} was not measured: name another `objective`"
        elif known is None:
            yield f"{name} has no error: raise probe.window_seconds above {limits.window_seconds:g}"
        elif known > 2 * target_error(result, name, limits.target_error_pct):
            yield f"the error of {name} is large: raise probe.iterations or probe.window_seconds"
    if result.start_up_s is not None and result.start_up_s > limits.max_seconds / 2:
        yield f"the start takes {result.start_up_s:.0f} s of probe.max_seconds {limits.max_seconds:g}: raise it"
