"""What a report says about a study: the best, failures with excerpts, device-seconds; and in which sentences.

A rung is a value of the ladder, mostly a number of environments. A session is a trainer that is started once for many
configs; the plain command starts the trainer for each.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tuner import export
from tuner.export import Headline
from tuner.probe import ITERATIONS_PER_S, MIB_PER_GIB, SAMPLES_PER_S, DeviceSeries, FailureKind, folder_of, read_series
from tuner.records.case_record import FOLDER
from tuner.records.trial import INTERRUPTED, OK, TrialRecord, pooled
from tuner.search.standing import Standing, undominated_in_value_and_speed
from tuner.study import LADDER, open_regular, rung_of, without_keys


def paragraph(texts: Iterable[str]) -> str:
    """Return texts as the sentences of a paragraph, each with a capital and a full stop."""
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)


class Failed(NamedTuple):
    """The failures of one kind in a case."""

    kind: str
    trials: int
    example: int
    """The trial of the excerpt."""
    detail: str
    excerpt: str | None
    """Some lines of one console log; None where no log can be read."""


def failures(trials: Sequence[TrialRecord], folder: Path) -> Iterator[Failed]:
    """Yield the failures by kind, the commonest first. `folder` is the study's folder, with the probes' folders."""
    kinds = {kind.value for kind in FailureKind} - {INTERRUPTED}
    failed = [trial for trial in trials if trial.status in kinds and trial.probe.failure]
    for kind, count in Counter(trial.status for trial in failed).most_common():
        newest_first = [trial for trial in reversed(failed) if trial.status == kind]
        # the newest whose log can be read is the example, if there is any
        with_log = ((trial, text) for trial in newest_first if (text := _excerpt(folder, trial)))
        example, excerpt = next(with_log, (newest_first[0], None))
        yield Failed(kind=str(kind), trials=count, example=example.number, detail=example.probe.detail, excerpt=excerpt)


def _excerpt(folder: Path, trial: TrialRecord) -> str | None:
    """Return twelve lines of a console log around the failure, or the last ones; None where nothing can be read.

    The last two megabytes of the log are searched for the detail of the failure. A line of more than 300 characters is
    cut off.
    """
    before, after, most_bytes = 4, 7, 2_000_000
    probe_folder = folder_of(folder, trial.probe.out_dir)
    if probe_folder is None:
        return None
    try:
        with open_regular(probe_folder / "console.log", follow=False) as file:
            size = file.seek(0, 2)  # to the end
            file.seek(max(0, size - most_bytes))
            lines = [without_keys(line) for line in file.read(most_bytes).decode(errors="replace").splitlines()]
    except OSError:
        return None
    detail = trial.probe.detail.strip()
    is_telling = len(detail) >= 12  # a shorter detail, such as `Killed`, may stand anywhere
    place = next((place for place, line in enumerate(lines) if is_telling and detail in line), None)
    if place is None:
        place = len(lines) - 1 - after  # so that the excerpt is the end of the log
    excerpt = lines[max(0, place - before) : place + 1 + after]
    return "\n".join(line[:300] for line in excerpt).strip("\n") or None


class SearchStep(NamedTuple):
    """One trial that gave a number, as a step of the search."""

    trial: TrialRecord
    value: float
    ended_s: float
    """The device-seconds that all trials up to this one took."""


def search_steps(trials: Sequence[TrialRecord], devices: int) -> tuple[SearchStep, ...]:
    """Return the trials that gave a number, in their order, with the device-seconds of all trials up to each."""
    passed_s = accumulate((trial.probe.total_s or 0.0) * devices for trial in trials)
    return tuple(
        SearchStep(trial=trial, value=trial.value, ended_s=ended_s)
        for trial, ended_s in zip(trials, passed_s, strict=True)
        if trial.status == OK and trial.value is not None
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseFacts:
    """What a report says about one case."""

    view: export.CaseView
    summary: export.CaseSummary
    points: tuple[Standing, ...]
    """The measured configs, the best objective first."""
    front: frozenset[str]
    """The eligible configs that no other one beats in both the objective and samples/s, by `Standing.launch_key`."""
    steps: tuple[SearchStep, ...]
    out_of_memory: tuple[int, ...]
    """The rungs that ran out of device memory."""
    first_best: SearchStep | None
    """The step that first measured the best."""
    device_s: float
    """The device-seconds of all probes."""
    failures: tuple[Failed, ...]
    series: DeviceSeries | None
    """What the devices of the best's newest probe showed over time."""
    missing: tuple[str, ...]
    """What the report could not find."""

    def is_best(self, point: Standing) -> bool:
        """Return whether a measured config is the best."""
        return self.view.best is not None and point.launch_key == self.view.best.launch_key

    def on_front(self, point: Standing) -> bool:
        """Return whether no other eligible config beats a measured config in both the objective and samples/s."""
        return point.launch_key in self.front


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyFacts:
    """What a report says about a study."""

    name: str
    cases: tuple[CaseFacts, ...]
    waiting: tuple[str, ...] | None
    """The study's trainable cases without a trial so far; None where nobody knows the trainer's cases."""
    machine: dict[str, tuple[str, ...]]
    """Fact about the machines that measured → its values, the name of the machine left out."""
    methods: tuple[Mapping[str, object], ...] = ()
    """The rows of `method_summary.tsv`."""
    ladder: str = LADDER
    """The parameter whose values are the rungs."""
    safe: int | None = None
    """The largest rung that runs in all cases; None where a case has no success."""

    @property
    def failures(self) -> dict[str, int]:
        """The kinds of failure over all cases, the commonest first, with the number of trials."""
        counts = Counter[str]()
        for case in self.cases:
            counts.update({failed.kind: failed.trials for failed in case.failures})
        return dict(counts.most_common())


def gather(reader: export.StudyReader, folder: Path, trainable: Iterable[str] | None = None) -> StudyFacts:
    """Return the facts of every case that has begun; `folder` is the study's folder.

    `trainable` are the trainable cases of the study, where the trainer is there to name them. Raises StoreError where
    there is no study.
    """
    cases = tuple(sorted((_case_facts(view, folder) for view in reader.cases), key=_rank, reverse=True))
    begun = {view.name for view in reader.cases}
    machine: dict[str, dict[str, None]] = {}  # what the trials say, without names and folders; dicts as ordered sets
    for trial in reader.trials():
        for name, value in trial.probe.host.items():
            if name not in {"name", FOLDER}:
                machine.setdefault(name, {})[value] = None
    waiting = None if trainable is None else tuple(name for name in trainable if name not in begun)
    return StudyFacts(
        name=reader.study,
        cases=cases,
        waiting=waiting,
        machine={name: tuple(values) for name, values in machine.items()},
        methods=tuple(export.method_summary(reader).rows),
        ladder=export.ladder_of_study(reader),
        safe=export.safe_rung(reader.cases),
    )


def _rank(case: CaseFacts) -> float:
    """Return what the best gains over the default, by which cases are ranked: 0 if unknown, -inf without a best."""
    if case.summary.best is None:
        return float("-inf")
    gain = case.summary.gain
    return gain.after - gain.before if gain else 0.0


def _case_facts(view: export.CaseView, folder: Path) -> CaseFacts:
    """Return the facts of one case; `folder` is the study's folder."""
    trials, best = view.trials, view.best
    devices = max(1, len(view.record.devices))
    newest_of_best = best.trials[-1] if best else None
    measured = tuple(sorted(view.configs, key=lambda point: -point.value))
    all_steps = search_steps(trials, devices)
    too_large = {view.rung(trial.config) for trial in trials if trial.status == FailureKind.GPU_OOM}
    probe_folder = folder_of(folder, newest_of_best.probe.out_dir) if newest_of_best else None
    series = read_series(probe_folder) if probe_folder else None
    failed = tuple(failures(trials, folder))
    return CaseFacts(
        view=view,
        summary=export.summary(view),
        points=measured,
        front=frozenset(point.launch_key for point in undominated_in_value_and_speed(measured)),
        steps=all_steps,
        out_of_memory=tuple(sorted(rung for rung in too_large if rung is not None)),
        first_best=next((step for step in all_steps if best and step.trial.launch_key == best.launch_key), None),
        device_s=view.probe_s * devices,
        failures=failed,
        series=series,
        missing=tuple(_missing_parts(newest_of_best, series, failed, measured)),
    )


def _missing_parts(
    best: TrialRecord | None, series: DeviceSeries | None, failed: Iterable[Failed], measured: Sequence[Standing]
) -> Iterable[str]:
    """Yield what the report cannot show of a case."""
    if not measured:
        yield "no trial has given a number yet"
    if best and series is None:
        where = best.probe.out_dir or "its folder"
        yield f"what the devices of the best's probe showed over time: there is no series in {where}"
    for failure in failed:
        if failure.excerpt is None:
            yield f"a console log of {failure.kind}: the folders of these probes are not here any more"
    on_cards = best is not None and any(device.is_gpu for device in best.probe.devices)
    if on_cards and all(point.sm_pct is None for point in measured):
        yield "the activity of multiprocessors: these devices do not report it"


def case_headline(case: CaseFacts) -> Headline:
    """Return the headline of a case in a report: what its best config gains over the default, and its values.

    A gain in speed is shown as a factor, and any other gain by the objectives of the default and of the best. Where the
    gain is unknown, the headline is the objective of the best, and the sentence below says why.
    """
    best, default, objective = case.view.best, case.view.default, case.summary.objective
    if best is None:
        return Headline("No config has run yet", f"{case.summary.case}: {case.summary.status.replace('_', ' ')}.")
    of_best = [f"its values: {export.in_words(best.config)}"]
    if case.view.changes_learning(best.config):
        of_best.append("this changes what is learnt")
    name, sessions = case.view.default_name, export.session_note(case.summary)
    value = f"{objective} {export.with_error(best.value, best.widened_error)}"
    if default is None:
        return Headline(value, paragraph([f"{name} was not measured", *of_best]))
    if default.launch_key == best.launch_key:  # the same config
        return Headline(f"{name.capitalize()} is the best so far", paragraph(of_best))
    if case.summary.gain is None:
        why = sessions or "; ".join(export.doubts(case.view))
        return Headline(value, paragraph(filter(None, [why, *of_best])))
    text, below = export.gain_headline(objective, case.summary.gain, name)
    return Headline(text, paragraph(filter(None, [below, sessions, *export.unmeasured(case.view), *of_best])))


def study_headline(study: StudyFacts) -> str:
    """Return how many of the trainable cases have a best, how many have none, and how many are at their beginning."""
    with_best = sum(case.summary.best is not None for case in study.cases)
    begun, waiting = len(study.cases), study.waiting
    total = begun + len(waiting or ())
    kind = "begun" if waiting is None else "trainable"  # None: which cases the trainer has is unknown
    have = "cases have" if total > 1 else "case has"
    text = f"{with_best} of {total} {kind} {have} a best config"
    unended = sum(case.summary.status == export.NO_TRIALS for case in study.cases)
    tried = begun - with_best - unended
    without_best = [f"{tried} tried without success"] if tried else []
    without_best += [f"{unended} without an ended trial"] if unended else []
    without_best += [f"{len(waiting)} not begun"] if waiting else []
    return f"{text}; {', '.join(without_best)}." if without_best else f"{text}."


def explanation(study: StudyFacts) -> str:
    """Return sentences that explain the words of the first table."""
    meanings = {
        "min_avg_util": "the mean utilisation of the least busy device, in percent",
        "min_avg_sm": "the mean share of active multiprocessors on the least busy device, in percent",
        SAMPLES_PER_S: "the number of samples that all devices together train in a second",
        ITERATIONS_PER_S: "the number of iterations in a second, of which each has the same samples in all configs",
    }
    names = dict.fromkeys(case.summary.objective for case in study.cases)
    lines = [f"{name} is {meanings[name]}." for name in names if name in meanings]
    lines.append("A number after ± is a standard error.")
    rows = [case.summary for case in study.cases if case.summary.default]
    if any(row.default and rung_of(row.default.config, row.ladder) is None for row in rows):  # a case without ladder
        lines.append("The default has the first value of each parameter.")
    elif rows:
        # the ladder of the first case stands for all; an agent file names the network and the optimizer
        ladder, agent = rows[0].ladder, "an unchanged agent file, and the first value of each other parameter"
        lines.append(f"The default has the measured {ladder} that is nearest to the best's, {agent}.")
    if len(study.cases) > 1:
        lines.append("The case whose best gains most over the default comes first.")
    return " ".join(lines)


def result_sentences(case: CaseFacts) -> str:
    """Return a few sentences about the result of a case."""
    row = case.summary
    known = export.findings(row)
    texts = [str(finding) for finding in known if finding.topic is export.Topic.RESULT]
    if row.bound:
        texts.append(f"its devices: {row.profile}")
    texts += map(str, known)
    if row.gain:
        texts += export.whole_training(case.view)
        texts += export.doubts(case.view)
    return paragraph(dict.fromkeys(texts))  # each once: the result is among the findings, too


def cost(case: CaseFacts) -> str:
    """Return a line with the number of a case's trials, how they ended, and how long the devices were in use."""
    devices = max(1, len(case.view.record.devices))
    return f"{export.trials(case.summary) or 'no trials'}; {export.in_use(case.device_s / devices, devices)}"


def memory(case: CaseFacts) -> str:
    """Return the memory that the best uses and leaves free; empty where it is unknown."""
    metrics = pooled(case.view.best.trials).probe.metrics if case.view.best else {}
    peak_mib, headroom_pct = metrics.get("mem_peak_mib"), metrics.get("headroom_pct")
    free = "" if headroom_pct is None else f", {headroom_pct:.0f}\u00a0%\u00a0free"
    return "" if peak_mib is None else f"{peak_mib / MIB_PER_GIB:.1f}\u00a0GiB{free}"


def whole_number(number: float | None) -> str:
    """Return a number without its fraction; empty where it is unknown."""
    return "" if number is None else f"{number:,.0f}"


def when_found(case: CaseFacts) -> str:
    """Return when the best was found, and what the search did afterwards, as sentences."""
    if case.first_best is None or not case.device_s:
        return "Each dot is a trial; the line is the highest measurement so far."
    ended_s = case.first_best.ended_s
    share_pct = 100.0 * ended_s / case.device_s
    text = f"Trial #{case.first_best.trial.number} first measured the best config, "
    text += f"after {ended_s:,.0f} device-seconds ({share_pct:.0f} % of all)."
    why_ended = case.view.attributes.ended  # None where the search may still go on
    if share_pct < 99.5:  # a larger share is printed as 100 %
        text += f" The rest {'made sure that no other config is' if why_ended else 'found no config that is'} better."
    if why_ended:
        text += f" {paragraph([export.at_its_end(why_ended)])}"
    return text


def memory_end(case: CaseFacts) -> str:
    """Return from which rung on configs ran out of memory; empty where none did."""
    return f"{case.summary.ladder} {case.out_of_memory[0]:,} ran out of memory." if case.out_of_memory else ""
