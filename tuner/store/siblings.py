"""Finds the cases of a study from which another case may learn."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from optuna.trial import FrozenTrial

from tuner.kept.case import known_case
from tuner.kept.identity import comparable
from tuner.search.observed import Observed
from tuner.search.siblings import NEAREST, Sibling, most_similar
from tuner.search.standing import best
from tuner.search.trials import all_kept, kept
from tuner.store.database import Database
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
