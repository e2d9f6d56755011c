"""What other cases of a study lend to a case, and which probes of the study run now, on which machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from optuna.trial import FrozenTrial
from sqlalchemy import select

from tuner.kept.case_record import comparable, known_case
from tuner.kept.stored import ATTRIBUTES, CONFIRMS, LEASE, STATE, STUDIES, TRIALS, of_study, read_json
from tuner.kept.trial import RUNNING
from tuner.search.observed import Observed
from tuner.search.siblings import NEAREST, Sibling, most_similar
from tuner.search.standing import best
from tuner.search.trials import all_kept, kept
from tuner.store.database import Database
from tuner.store.leases import Lease
from tuner.store.storage import TrialStorage
from tuner.study.cases import Case


def siblings(database: Database, study: str, case: Case, identity: Mapping[str, Any]) -> list[Sibling]:
    """Return up to `NEAREST` similar cases of a study that have a best config, the most similar one first.

    The same devices have measured them with the same trainer and the same objective. Raises StoreError.
    """
    storage, mine = database.storage, comparable(identity)

    def found() -> list[Sibling]:
        cases = storage.cases(study)
        others = [
            known_case(name, facts.case)
            for name, (_, facts) in cases.items()
            if comparable(facts.identity or {}) == mine
        ]
        known = (
            sibling(name, storage.get_all_trials(cases[name][0], deepcopy=False)) for name in most_similar(case, others)
        )
        return list(islice((one for one in known if one), NEAREST))

    return database.transact(found)


def sibling(case: str, trials: Iterable[FrozenTrial]) -> Sibling | None:
    """Return what a case's trials show, by the first objective; None where no config may be the best."""
    known_trials = list(trials)
    known = best(all_kept(known_trials))
    if known is None:
        return None
    costs = [(trial.params, cost) for trial in known_trials if (cost := kept(trial).cost)]
    measured = Observed(known_trials).measured.values()
    made = [(one.config, *value) for one in measured for value in zip(one.values, one.errors, strict=True)]
    return Sibling(case=case, best=dict(known.trials[-1].config), costs=costs, readings=made)


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """A probe that a living process runs now."""

    trial: int
    """The id of its trial in the database."""
    case: str
    """The name of the case's study."""
    is_here: bool
    """Whether it runs on this machine."""
    confirms: bool
    """Whether it measures the best of its case again."""


def running(storage: TrialStorage, study: str) -> list[Neighbour]:
    """Return the probes of all cases of a study that run now. A trial whose process is gone is left out."""
    query = (
        select(TRIALS.c.trial_id, STUDIES.c.study_name, ATTRIBUTES.c.key, ATTRIBUTES.c.value_json)
        .join_from(TRIALS, STUDIES, STUDIES.c.study_id == TRIALS.c.study_id)
        .join(ATTRIBUTES, ATTRIBUTES.c.trial_id == TRIALS.c.trial_id)
        .where(of_study(study), STATE == RUNNING, ATTRIBUTES.c.key.in_([LEASE, CONFIRMS]))
        .order_by(TRIALS.c.trial_id)
    )
    rows = storage.rows(query)
    confirming = {row.trial_id for row in rows if row.key == CONFIRMS}
    leases = [(row, Lease.read(read_json(row.value_json))) for row in rows if row.key == LEASE]
    return [
        Neighbour(
            trial=row.trial_id,
            case=row.study_name,
            is_here=lease.is_here(),
            confirms=row.trial_id in confirming,
        )
        for row, lease in leases
        if lease and lease.held()
    ]
