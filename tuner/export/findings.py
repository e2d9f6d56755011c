"""What there is to know about a case, as a list of findings; terminal, report, notes and scripts show parts of it.

A config is measured by the plain command (cold), which starts the trainer for it, or in a session (warm): a trainer
that is started once for many configs. A rung is a value of the ladder, mostly a number of environments. A race trains
some configs for the same time and compares their scores.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tuner.export.bound import advice
from tuner.export.case_view import NO_TRIALS, CaseView
from tuner.export.gain_in_words import gain_clause, session_note
from tuner.export.summary import CaseSummary, ConfigRow
from tuner.export.wording import in_words, merged_lines, relative_to_cwd, remedy, unit, with_error
from tuner.probe import SAMPLES_PER_S, Blame, FailureKind, folder_of, number_of


class Topic(StrEnum):
    """What a finding is about."""

    REPLAY = "replay"
    RESULT = "result"
    STOPPED = "stopped"
    CHOICE = "choice"
    FASTER = "faster"
    LIMIT = "limit"
    DOUBT = "doubt"
    DEVICES = "devices"
    LEFT_OUT = "left_out"


class Sureness(StrEnum):
    """How sure a finding is."""

    MEASURED = "measured"
    WITHIN_ERROR = "within the error"
    UNCONFIRMED = "unconfirmed"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseFinding:
    """Something to know about a case."""

    topic: Topic
    text: str
    """What was found, as a sentence without capital and full stop."""
    sureness: Sureness = Sureness.MEASURED
    action: str = ""
    """What to do about it; empty where nothing is to be done."""

    def __str__(self) -> str:
        return "; ".join(filter(None, [self.text, self.action]))


def findings(row: CaseSummary) -> list[CaseFinding]:
    """Return all that there is to know about a case, the result before its limits and doubts."""
    replay = f"replay of {row.replay_of}; no trainer ran"
    limit = f"{row.bound}: {advice(row.bound, row.profile)}" if row.bound and row.profile else ""
    return [
        *([CaseFinding(topic=Topic.REPLAY, text=replay)] if row.replay_of else []),
        result_finding(row),
        *([CaseFinding(topic=Topic.STOPPED, text=row.stopped)] if row.stopped else []),
        *_findings_on_choice(row),
        *_findings_on_faster(row),
        *([CaseFinding(topic=Topic.LIMIT, text=limit)] if limit else []),
        *(CaseFinding(topic=Topic.DOUBT, text=doubt, sureness=Sureness.DOUBTFUL) for doubt in row.doubts),
        *_devices_and_left_out(row),
    ]


def findings_beside_table(row: CaseSummary) -> list[CaseFinding]:
    """Return the findings to print below a table of the study's cases, whose numbers already show the result.

    The result is among them where numbers do not say all: where there is no best, where the best changes what is
    learnt, and where best and default were not measured in the same way.
    """
    changes_learning = bool(row.best and row.best.changes_learning)
    needs_words = row.has_none_eligible or changes_learning or bool(session_note(row))
    return [finding for finding in findings(row) if finding.topic is not Topic.RESULT or needs_words]


def result_finding(row: CaseSummary) -> CaseFinding:
    """Return what the best reaches beside the default, and what it changes; or that there is no best."""
    best = row.best
    if best is None:
        if row.status == NO_TRIALS:
            return CaseFinding(topic=Topic.RESULT, text="no trial has ended yet")
        what = "no config that ran is eligible as best" if row.ok else "no config has run"
        return CaseFinding(topic=Topic.RESULT, text=f"{what} ({row.status})", action="; ".join(_remedies(row)))
    value = f"{with_error(best.value, best.error)} {unit(row.objective)}"
    text = f"the best reaches {value}{gain_clause(row, best)}"
    if names := best.changes_learning:
        text += f"; {', '.join(names)} {'change' if len(names) > 1 else 'changes'} what is learnt"
    return CaseFinding(topic=Topic.RESULT, text=text)


def failed_configs(view: CaseView, folder: Path) -> str | None:
    """Return how many configs of a case have failed, of what, and where the newest log is; None where none has.

    `folder` is that of the study.
    """
    if not view.failures:
        return None
    tried = len({trial.launch_key for trial in view.ended})
    kinds = Counter(str(trial.failure) for trial in view.failures)
    of_what = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    newest = view.failures[-1]
    log = (folder_of(folder, newest.probe.out_dir) or folder) / "console.log"
    where = f"; log: {relative_to_cwd(log)}" if log.is_file() else ""
    detail = " ".join(newest.probe.detail.split())
    detail = detail if len(detail) <= 200 else f"{detail[:198]} …"
    return f"{len(view.failures)} of {number_of(tried, 'config')} failed, {of_what}; #{newest.number}: {detail}{where}"


def failed_lines(views: Iterable[CaseView], folder: Path) -> list[str]:
    """Return `failed_configs` of each case that has such configs, with equal texts in one line."""
    texts = ((view.name, failed_configs(view, folder)) for view in views)
    return merged_lines((case, text) for case, text in texts if text)


def _remedies(row: CaseSummary) -> Iterator[str]:
    """Yield what to do about a case of which all trials so far have failed or were pruned; else nothing."""
    if not row.has_none_eligible:
        return
    kind = next((kind for kind in FailureKind if kind == row.status), None)  # None where all were pruned
    if kind and (kind.remedy or kind.blame is not Blame.CONFIG):  # other configs may not help until this is repaired
        yield remedy(kind, row.case)
    if row.ladder and (kind is None or kind.blame in {Blame.CONFIG, Blame.UNKNOWN}):  # it tries smaller rungs
        yield "`tuner recover` searches for a config that runs"


def _findings_on_choice(row: CaseSummary) -> Iterator[CaseFinding]:
    """Yield why the best was preferred to a config with a higher value, and whether the best is still unconfirmed.

    A best is confirmed once the plain command has measured it: in sessions alone, other values may be measured.
    """
    if row.best and (highest := row.instead_of):
        advantage = "less memory, or values nearer to the default's"
        if highest.times is not None and highest.times < 1.0:  # the best makes more samples/s than the highest
            advantage = f"{1.0 / highest.times:.2g} times the samples/s"
        text = (
            f"#{highest.trial} measured more, {_value_text(highest)} against {_value_text(row.best)}, "
            f"but within the standard error; the best is preferred for {advantage}"
        )
        yield CaseFinding(topic=Topic.CHOICE, text=text, sureness=Sureness.WITHIN_ERROR)
    if row.best and (unconfirmed := row.unconfirmed):
        measured = f"#{unconfirmed.trial} measured {_value_text(unconfirmed)} in sessions"
        text = f"the best is unconfirmed: {measured}, and the plain command has not measured it"
        yield CaseFinding(topic=Topic.CHOICE, text=text, sureness=Sureness.UNCONFIRMED)


def _value_text(row: ConfigRow) -> str:
    """Return the value of a config with its error, with two decimals because close values are compared."""
    return with_error(row.value, row.error, 2)


def _speed_beside_best(row: ConfigRow) -> str:
    """Return a clause with a config's samples/s: as a multiple of the best's, or in numbers where those are unknown."""
    speed = f"{row.times:.1f} times the best's" if row.times else with_error(row.samples_per_s or 0.0, None)
    return f"#{row.trial} makes {speed} samples/s"


def _findings_on_faster(row: CaseSummary) -> Iterator[CaseFinding]:
    """Yield a finding for each config worth naming that makes more samples/s than the best, with the result of a race.

    There are two at most: the fastest that learns what the default does, and the rival, which makes far more samples/s
    and may learn something else. They may be the same config, which then has one finding.
    """
    fastest, rival = row.fastest, row.faster
    are_same = fastest is not None and rival is not None and rival.trial == fastest.trial
    race = row.race or "no race has shown which of the two learns more in an hour"
    if fastest and not are_same:
        text = f"{_speed_beside_best(fastest)}, and learns the same as the default; {race}"
        yield CaseFinding(topic=Topic.FASTER, text=text)
    if rival:
        value = f"{with_error(rival.value, rival.error)} {unit(row.objective)}"
        if rival.beside_best and row.best and rival.measured != row.best.measured:  # only sessions have measured both
            of_rival, of_best = (with_error(number, None) for number in rival.beside_best)
            value = f"{of_rival} {unit(row.objective)}, in sessions, where the best has {of_best}"
        text = f"{_speed_beside_best(rival)}, at {value}, with {in_words(rival.config)}"
        if are_same:
            text += f"; it learns the same as the default; {race}"
        action = (
            f"in a study with another name, the objective {SAMPLES_PER_S} searches for such configs, and "
            f"{row.objective},{SAMPLES_PER_S} for both, by the sampler tpe"
        )
        yield CaseFinding(topic=Topic.FASTER, text=text, action=action)


def _devices_and_left_out(row: CaseSummary) -> Iterator[CaseFinding]:
    """Yield on how many sets of devices the trials ran, if on several, and how many trials do not count."""
    if len(row.measured_on) > 1:
        text = f"measured on {len(row.measured_on)} sets of devices (measured_on in trials.tsv)"
        action = "on another host the same config may measure several percent more or less"
        yield CaseFinding(topic=Topic.DEVICES, text=text, sureness=Sureness.DOUBTFUL, action=action)
    if row.left_out:
        text = f"{number_of(row.left_out, 'trial')} left out: added by another program, or damaged"
        yield CaseFinding(topic=Topic.LEFT_OUT, text=text)
