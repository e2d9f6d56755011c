"""Every sentence about a case, once; the terminal, the report, the notes and the script choose which they show.

Texts of a database or of a trainer are made harmless here, for a terminal and for Markdown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from tuner.export.bound import advice
from tuner.export.case_view import CaseSummary, ConfigRow
from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S, Blame, FailureKind, duration
from tuner.study import Value, grouped, rung_of, written

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters without tab and line break (Unicode's `Cc`), and those that change the direction of writing."""
_MARKDOWN = re.compile(r"[\\`<>\[\]|]")
_TICKS = re.compile("`+")


def printable(text: str) -> str:
    """Return a text without control characters: it cannot move a terminal's cursor, colour it, or hide a part."""
    return _CONTROL.sub("", text)


def markdown(text: str) -> str:
    """Return a text as one line of Markdown that shows it: no HTML, no link, no code and no cell of a table."""
    line = " ".join(re.split(r"[\r\n\u2028\u2029]+", text)).replace("&", "&amp;")
    return _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), printable(line))


def code(text: str) -> str:
    """Return a text as a span of code in Markdown, whatever backticks it has."""
    line = printable(" ".join(text.splitlines()))
    fence = "`" * (_longest(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def fenced(text: str) -> str:
    """Return a text as a block of code in Markdown, whose fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


_ENTITIES = {"<": "&lt;", ">": "&gt;"}


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


EXHAUSTED = "nothing left that is worth a probe"


def in_words(config: Mapping[str, Value], total_batch: float | None = None) -> str:
    """Return a config as one line of NAME=VALUE, with its total batch if that is known."""
    words = [f"{name}={written(value)}" for name, value in config.items()]
    return " ".join(words if total_batch is None else [*words, f"(total batch {total_batch:,.10g})"])


SPEEDS = {SAMPLES_PER_S: "samples/s", ITERATIONS_PER_S: "iterations/s"}
"""The objectives that are speeds → how a person says them."""


def figure(value: float) -> str:
    """Return a number of any size as text: four significant digits, or all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def score_text(value: float, error: float | None) -> str:
    """Return the score of a race as text, with its standard error if that is known."""
    return figure(value) if error is None else f"{figure(value)} ± {error:.3g}"


def _decimals(value: float, error: float | None) -> int:
    """Return the digits after the point: one, or of a small value as many as show its error, at most three."""
    if error is None or abs(value) >= 10 or error >= 0.05:
        return 1
    return 2 if error >= 0.005 else 3


def with_error(value: float, error: float | None, decimals: int | None = None) -> str:
    """Return a value as text, with its standard error if that is known."""
    decimals = _decimals(value, error) if decimals is None else decimals
    return f"{value:.{decimals}f}" if error is None else f"{value:.{decimals}f} ± {error:.{decimals}f}"


def trials(row: CaseSummary) -> str:
    """Return the number of trials of a case by how they ended; empty where there are none."""
    ends = ("ok", "pruned", "failed", "interrupted", "running")
    return ", ".join(f"{number} {end}" for end in ends if (number := getattr(row, end)))


def in_use(seconds: float, devices: int) -> str:
    """Return for how long probes have used some devices."""
    return f"{duration(seconds)}, {seconds * devices:,.0f} device-seconds"


def reached(row: CaseSummary) -> str:
    """Return what the best reaches beside the default, and what it changes; or that there is no best."""
    best = row.best
    if best is None:
        said = f"no config {'that ran is eligible as best' if row.ok else 'has run'} ({row.status})"
        return "; ".join([said, *_way_out(row)])
    said = f"the best reaches {with_error(best.value, best.error)} {row.objective}{_beside_default(row, best)}"
    if names := best.changes_learning:
        said += f"; {', '.join(names)} {'change' if len(names) > 1 else 'changes'} what is learnt"
    return said


def no_best(*cases: str) -> str:
    """Return what to say where cases have no best config, and a command needs one."""
    return f"no best config yet for {', '.join(cases)}; `tuner status` shows where the study stands"


def _way_out(row: CaseSummary) -> Iterator[str]:
    """Yield what to do about a case without a best. Smaller rungs help where the config may be at fault."""
    if not row.without_success:
        return
    kind = next((kind for kind in FailureKind if kind == row.status), None)
    if kind and kind.blame is not Blame.CONFIG:
        yield remedy(kind, row.case)
    if kind is None or kind.blame in {Blame.CONFIG, Blame.UNKNOWN}:
        yield "`tuner recover` searches for a config that runs"


def remedy(kind: FailureKind, case: str) -> str:
    """Return what the user can do about a kind of failure."""
    return kind.remedy or f"read the newest console.log under probes/{case}"


def _beside_default(row: CaseSummary, best: ConfigRow) -> str:
    default = row.default
    if default is None:
        ratio = best.vs_default
        return (
            "; the default has not been measured"
            if ratio is None
            else f", at {ratio:.2f} times the default's samples/s"
        )
    rung = rung_of(default.config, row.ladder)
    at_its = rung == rung_of(best.config, row.ladder)
    name = "the default of its rung" if at_its else f"the default at {row.ladder}={rung}"
    name = "the default" if rung is None else name
    if default.config == best.config:
        return f"; it is {name}"
    name += f", #{default.trial}"
    if default.beside_best is None and default.measured == best.measured:
        return f"; {name}, has {with_error(default.value, default.error)}, which cannot be compared with the best"
    if default.beside_best is None:
        way = "in sessions" if default.measured == "warm" else "by the plain command"
        value = with_error(default.value, default.error)
        return f"; {name}, has {value} {way}, which has not measured the best"
    other, own = default.beside_best
    if row.objective in SPEEDS:
        return f", {own / other:.2f} times {name}{_where(row, default)}" if other else ""
    points = own - other
    said = f", {abs(points):.1f} points {'above' if points >= 0 else 'below'} {name}{_where(row, default)}"
    ratio = (best.vs_default if at_its else None) or (1.0 / default.times if default.times else None)
    return said if ratio is None else f"{said}, at {ratio:.2f} times its samples/s"


def _where(row: CaseSummary, other: ConfigRow) -> str:
    """Return where the best and another config were compared, if not where the best's value comes from."""
    return ", in sessions" if row.best and other.measured != row.best.measured else ""


def choice(row: CaseSummary) -> Iterator[str]:
    """Yield what the choice of the best gave up for what, and why it is not sure yet."""
    if row.best and (top := row.instead_of):
        gain = "less memory, or values nearer to the default's"
        if top.times is not None and top.times < 1.0:
            gain = f"{1.0 / top.times:.2g} times the samples/s"
        yield (
            f"within the standard error the best is as good as the highest, #{top.trial}: "
            f"{_precise(row.best)} instead of {_precise(top)}, for {gain}"
        )
    if row.best and (waiting := row.unconfirmed):
        itself = "only sessions have measured it, and not the trainer's plain command"
        other = f"#{waiting.trial} measured {_precise(waiting)} in sessions, and the plain command has not measured it"
        yield f"the best is unconfirmed: {itself if waiting.trial == row.best.trial else other}"


def _precise(row: ConfigRow) -> str:
    return with_error(row.value, row.error, 2)


def remarks(row: CaseSummary) -> Iterator[str]:
    """Yield what the table of a study's cases does not show: what the best gives up, what limits it, what to do."""
    if row.replay_of:
        yield f"replay of {row.replay_of}; no trainer ran"
    if row.without_success or (row.best and row.best.changes_learning):
        yield reached(row)
    yield from choice(row)
    if rival := row.faster:
        reads = f"{with_error(rival.value, rival.error)} {row.objective}"
        if rival.beside_best and (where := _where(row, rival)):
            reads = f"{rival.beside_best[0]:.1f} {row.objective}{where}, where the best has {rival.beside_best[1]:.1f}"
        yield (
            f"#{rival.trial} makes {rival.times or 0.0:.1f} times the best's samples/s, at {reads}, with "
            f"{in_words(rival.config)}; in a study with another name, the objective {SAMPLES_PER_S} or "
            f"{row.objective},{SAMPLES_PER_S} searches for such configs"
        )
    if row.bound and row.profile:
        yield f"{row.bound}: {advice(row.bound, row.profile)}"
    yield from row.doubts
    if len(row.measured_on) > 1:
        yield (
            f"measured on {len(row.measured_on)} sets of devices (measured_on in trials.tsv); "
            "on another host the same config may measure several points more or less"
        )
    if row.left_out:
        yield f"{row.left_out} trial(s) left out: another program added them, or their records are damaged"


def at_its_end(why: str) -> str:
    """Return why a search ended by itself."""
    return f"{EXHAUSTED}: {why}"


def shared(said: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each text, after the names of all that it is said about; `said` yields a name and a text."""
    alike = grouped(said, itemgetter(1))
    return [f"{', '.join(dict.fromkeys(name for name, _ in pairs))}: {text}" for text, pairs in alike.items()]


def sentences(texts: Iterable[str]) -> str:
    """Return texts as sentences of a paragraph."""
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)
