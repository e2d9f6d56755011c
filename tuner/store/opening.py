"""Begins the study of a case, or resumes it with unchanged settings; and finds the siblings from which a case learns.

Each case has a study of its own. The identity of a study is its settings that must not change, because they decide what
its measurements mean. A sibling is a similar case that has been searched before.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import StoreError
from tuner.records.case_record import StudyAttributes, comparable, in_newest_form, known_case
from tuner.records.schema import IDENTITY, REPAIRED, storable
from tuner.records.trial import COMPLETE, PRUNED_STATE, RUNNING
from tuner.search.standing import best
from tuner.search.trials import Observed, Sibling, typed_trial
from tuner.store.database import Database
from tuner.store.leases import is_held, lives_at
from tuner.store.storage import StoredCase
from tuner.study import Case, is_alike, most_similar, without_keys


def check_study(database: Database, name: str, identity: dict[str, Any]) -> None:
    """Raise StoreError if the study called `name` exists and cannot go on with these settings. This changes nothing.

    `identity`: the settings of the case that must not change.
    """
    storage = database.storage

    def check() -> None:
        """Compare the settings that the study stores with those of now; `_repairs_or_raise` is called for its error."""
        study_id = storage.study_id(name)
        if study_id is None:
            return
        stored = StudyAttributes(storage.get_study_user_attrs(study_id)).identity
        if stored is not None and stored != storable(identity):
            _repairs_or_raise(database, name, stored, identity, storage.get_all_trials(study_id, deepcopy=False))

    database.transact(check)


def open_study(
    database: Database, name: str, *, objectives: Sequence[str], pruner: BasePruner, identity: dict[str, Any]
) -> optuna.Study:
    """Begin and return the study called `name`, or resume it with unchanged settings. The caller holds a transaction.

    A study that has measured nothing yet takes over new settings: a person has repaired its set-up.

    Args:
        database: The database.
        name: The name of the study.
        objectives: The names of the values that it maximises, in their order.
        pruner: The pruner of its trials.
        identity: The settings that must not change while the study goes on.

    Raises:
        StoreError: The settings differ from those with which the study was begun; the error names them.
    """
    # Begin the study where there is none.
    directions = [StudyDirection.MAXIMIZE] * len(objectives)
    is_new = database.storage.study_id(name) is None
    opened = partial(optuna.create_study, directions=directions) if is_new else optuna.load_study
    study = opened(study_name=name, storage=database.storage, pruner=pruner, sampler=RandomSampler())
    attributes = study.user_attrs
    stored = StudyAttributes(attributes).identity

    # Refuse a study that cannot go on with these settings.
    if study.directions != directions:
        verbs = ", ".join(direction.name.lower() for direction in study.directions) or "nothing"
        raise StoreError(
            f"study {name} in {database.shown_url} was begun by another program: its objectives are to {verbs}, and "
            f"the tuner maximises {len(directions)}; give the study file another `name:`, or name another database"
        )
    if stored is not None and stored != storable(identity):
        trials = study.get_trials(deepcopy=False)
        if _repairs_or_raise(database, name, stored, identity, trials):  # from now on, the trials so far do not count
            study.set_user_attr(REPAIRED, 1 + max((trial.number for trial in trials), default=-1))

    # Store what has changed.
    if attributes.get(IDENTITY) != storable(identity):  # new, repaired, or in the form of an older version
        study.set_user_attr(IDENTITY, identity)
    if study.metric_names != list(objectives):  # without names, optuna-dashboard numbers the objectives
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(list(objectives))
    return study


def unchanged_attributes(database: Database, study: optuna.Study, identity: dict[str, Any]) -> StudyAttributes:
    """Return the attributes of a study whose settings are still those with which this process has opened it.

    Raises StoreError if another process has changed them since. Settings that mean the same in another form are equal.
    """
    attributes = StudyAttributes(study.user_attrs)
    stored = attributes.identity or {}
    if stored != identity:
        _check_identity(database, study.study_name, stored, identity)
    return attributes


def _repairs_or_raise(
    database: Database, study: str, stored: dict[str, Any], now: dict[str, Any], trials: Sequence[FrozenTrial]
) -> bool:
    """Return whether a study takes over new settings: True if they repair it, False if they mean the same as its own.

    They repair a study if it has measured nothing yet and nobody runs a trial: a person has repaired its set-up. The
    objectives must stay, because Optuna fixes their number. Once there are trials, the space must stay, because Optuna
    fixes the values of their parameters.

    Args:
        database: The database of the study.
        study: The name of the study.
        stored: The identity with which the study was begun.
        now: The identity with which it would go on.
        trials: The trials of the study.

    Raises:
        StoreError: The settings differ, and do not repair the study.
    """
    must_stay = ("objective", "space") if trials else ("objective",)
    if any(differences(stored, now)) and all(stored.get(part) == now.get(part) for part in must_stay):
        lives = lives_at(database.now_s())
        records = list(map(typed_trial, trials))
        is_run = any(record.state == RUNNING and is_held(record.lease, lives) for record in records)
        is_measured = any(record.state in {COMPLETE, PRUNED_STATE} and record.failure is None for record in records)
        if not (is_run or is_measured):
            return True
    _check_identity(database, study, stored, now)
    return False


def _check_identity(database: Database, study: str, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise StoreError if the settings differ from those with which the study was started; it names the differences."""
    if changed := list(differences(stored, now)):
        raise StoreError(
            f"study {study} in {database.shown_url} was started with other settings:\n"
            + "\n".join(changed)
            + "\nrestore these settings to resume the study; to start anew, give it another `name`, or "
            "choose another folder for the runs (and another storage if you use it)"
        )


def differences(stored: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each setting that differs from those with which a study was started; no line has a key in it.

    Earlier versions did not store the environment variables: then they count as equal. They masked other words, too.
    """
    yield from _differences_below("", {"variables": now.get("variables"), **in_newest_form(stored)}, storable(now))


def _differences_below(path: str, stored: object, now: object) -> Iterator[str]:
    """Yield a line for each setting that differs between two parts of a study's settings, which may hold further parts.

    Args:
        path: The keys that lead to the parts, as `trainer.options`; empty for the whole settings.
        stored: The part with which the study was started.
        now: The part with which it would go on.
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        for name in sorted(stored.keys() | now.keys()):
            yield from _differences_below(f"{path}.{name}".lstrip("."), stored.get(name), now.get(name))
    elif not is_alike(stored, now):
        yield without_keys(f"  {path}: was {stored!r}, is {now!r}")


def siblings(
    database: Database, study: str, case: Case, identity: Mapping[str, Any], script: str | None = None
) -> list[Sibling]:
    """Return up to three cases with a best config, measured by equal devices, from which a case learns.

    First come similar cases of the same study, the most similar first. Then come the cases of other studies that
    measured the same script, the newest first. Raises StoreError.

    Args:
        database: The database of the studies.
        study: The name of the case's study.
        case: The case.
        identity: The settings of the case, which a sibling must share as far as they decide what is measured.
        script: The name and digest of the script that it runs; None where that is unknown.
    """
    storage, prefix = database.storage, f"{study}/"

    def find() -> list[Sibling]:
        """Return the first three siblings, all read in one transaction."""
        cases = storage.cases()
        answers: list[Sibling] = []
        for name in _candidates(cases, prefix, case, identity, any_study=bool(script)):
            trials = storage.get_all_trials(cases[name].study_id, deepcopy=False)
            if not name.startswith(prefix):
                complete = (typed_trial(trial) for trial in trials if trial.state == TrialState.COMPLETE)
                if {trial.probe.facts.get("script") for trial in complete} != {script}:
                    continue
            if known_sibling := as_sibling(name.removeprefix(prefix), trials):
                answers.append(known_sibling)
            if len(answers) == 3:
                break
        return answers

    return database.transact(find)


def _candidates(
    cases: dict[str, StoredCase], prefix: str, case: Case, identity: Mapping[str, Any], *, any_study: bool
) -> list[str]:
    """Return the names of the cases that may be siblings: those of the same study, then those of other studies.

    Those of the same study come in the order of their similarity, those of other studies the newest first.

    Args:
        cases: All cases of the database by their names STUDY/CASE, in the order in which they were started.
        prefix: `STUDY/`, with which the names of the same study begin.
        case: The case that wants to learn.
        identity: Its settings, which a sibling must share as far as they decide what is measured.
        any_study: Whether cases of other studies count.
    """
    of_study = [
        known_case(name.removeprefix(prefix), stored.attributes.case)
        for name, stored in cases.items()
        if name.startswith(prefix) and comparable(stored.attributes.identity or {}) == comparable(identity)
    ]
    names = [f"{prefix}{name}" for name in most_similar(case, of_study)]
    if any_study:
        parts = ("objective", "source", "devices")
        wanted = [identity.get(part) for part in parts]
        for name, stored in reversed(cases.items()):
            case_identity = stored.attributes.identity or {}
            if not name.startswith(prefix) and [case_identity.get(part) for part in parts] == wanted:
                names.append(name)
    return names


def as_sibling(case: str, trials: Sequence[FrozenTrial]) -> Sibling | None:
    """Return what another, similar case can learn from a case's trials: its best config, costs and measurements.

    None where no config may be the best. The measurements are those of the first objective.
    """
    records = list(map(typed_trial, trials))
    best_config = best(records)
    if best_config is None:
        return None
    costs = [(trial.config, trial.cost) for trial in records if trial.cost]
    measured = Observed(trials).measured.values()
    readings = [(config.config, value.number, value.error) for config in measured for value in config.values]
    return Sibling(case=case, best=dict(best_config.trials[-1].config), costs=costs, readings=readings)
