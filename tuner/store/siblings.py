"""The other cases of a study that one may learn from."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from optuna.trial import FrozenTrial

from tuner.search.observed import COST
from tuner.search.siblings import NEAREST, Sibling, likest
from tuner.search.standing import best
from tuner.search.trials import readings
from tuner.store.database import Database
from tuner.store.records import CASE, IDENTITY
from tuner.study.cases import Case

RECORDED = "recorded"
"""In a trainer's fingerprint: when the table was recorded that stands in for it; each case has a table of its own."""
_SHARED = ("objective", "constraints", "source", "devices")
"""Of a case's identity, what its siblings must have in common with it, beside the trainer, to be compared with it."""


def siblings(database: Database, study: str, case: Case, identity: Mapping[str, Any]) -> list[Sibling]:
    """Give up to `NEAREST` other cases of a study that are like this one and have a best config, the likest first.

    They were measured on the same devices, by the same trainer, towards the same objective. Raises StoreError.
    """
    prefix, mine = f"{study}/", _shared(identity)
    with database.reported():
        found = {
            one.study_name.removeprefix(prefix): one
            for one in database.storage.get_all_studies()
            if one.study_name.startswith(prefix) and _shared(one.user_attrs.get(IDENTITY, {})) == mine
        }
        others = [_case(name, one.user_attrs.get(CASE, {})) for name, one in found.items()]
        known = (
            sibling(name, database.storage.get_all_trials(found[name]._study_id, deepcopy=False))
            for name in likest(case, others)
        )
        return list(islice((one for one in known if one), NEAREST))


def sibling(case: str, trials: Iterable[FrozenTrial]) -> Sibling | None:
    """Read a case's trials; None where none of them may be the best.

    Of several objectives the first counts.
    """
    told = list(trials)
    known = best(readings(told))
    if known is None:
        return None
    costs = [(trial.params, trial.user_attrs[COST]) for trial in told if COST in trial.user_attrs]
    return Sibling(case=case, best=told[known.trials[-1]].params, costs=costs)


def _case(name: str, record: Mapping[str, Any]) -> Case:
    """Return a case as far as its record says what it is like; older records leave that to its name."""
    if "robot" not in record:
        return Case(name=name)
    return Case(name=name, method=record["method"], robot=tuple(record["robot"]))


def _shared(identity: Mapping[str, Any]) -> list[Any]:
    trainer = {name: fact for name, fact in identity.get("trainer", {}).items() if name != RECORDED}
    return [trainer, *(identity.get(part) for part in _SHARED)]
