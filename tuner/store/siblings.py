"""The other cases of a study that one may learn from."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from optuna.trial import FrozenTrial

from tuner.kept.case import known_case
from tuner.kept.identity import comparable
from tuner.kept.study import KeptStudy
from tuner.search.siblings import NEAREST, Sibling, likest
from tuner.search.standing import best
from tuner.search.trials import kept, readings
from tuner.store.database import Database
from tuner.study.cases import Case


def siblings(database: Database, study: str, case: Case, identity: Mapping[str, Any]) -> list[Sibling]:
    """Give up to `NEAREST` other cases of a study that are like this one and have a best config, the likest first.

    They were measured on the same devices, by the same trainer, towards the same objective. Raises StoreError.
    """
    prefix, mine = f"{study}/", comparable(identity)
    with database.reported():
        studies = {
            one.study_name.removeprefix(prefix): (one._study_id, KeptStudy(one.user_attrs))
            for one in database.storage.get_all_studies()
            if one.study_name.startswith(prefix)
        }
        others = [
            known_case(name, kept_study.case)
            for name, (_, kept_study) in studies.items()
            if comparable(kept_study.identity or {}) == mine
        ]
        known = (
            sibling(name, database.storage.get_all_trials(studies[name][0], deepcopy=False))
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
    costs = [(trial.params, cost) for trial in told if (cost := kept(trial).cost)]
    return Sibling(case=case, best=told[known.trials[-1]].params, costs=costs)
