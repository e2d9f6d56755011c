"""What the work on a case is for: to search, to recover, to calibrate, to record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.search.calibration import BatchToFit, of_batch, of_ladder
from tuner.search.choosing import Strategy
from tuner.search.searching import Siblings, calibrating, in_order, recovery, searching
from tuner.study.batch import REASON
from tuner.study.space import Config, Space
from tuner.study.spec import StudySpec

StrategyOf = Callable[[Space, StudySpec, int, Siblings], Strategy]
"""Makes a strategy from the space, the case's settings, the number of trials so far, and the case's siblings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    strategy: StrategyOf
    limited: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the strategy has nothing left."""
    competing: bool = True
    """Whether configs compete: a clear loser ends early, and the best is measured again cold."""
    keeps_end: bool = True
    """Whether the study keeps the reason why the work ended. It keeps none if other work on the case follows."""
    ineligible: str | None = None
    """Why no config that is probed for this purpose may be the best; None where each may be."""


SEARCH = Purpose(strategy=searching)
"""Find the best config."""
RECOVER = Purpose(strategy=lambda space, *_: recovery(space), limited=False, keeps_end=False)
"""Find one config that runs, for a case that has had no success."""
CALIBRATE = Purpose(
    strategy=lambda space, *_: calibrating(of_ladder(space)), limited=False, competing=False, keeps_end=False
)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def fit_batch(batch: BatchToFit) -> Purpose:
    """Probe small batch sizes, from which the batch size that is `auto` is worked out."""
    return Purpose(
        strategy=lambda *_: calibrating(of_batch(batch)),
        limited=False,
        competing=False,
        keeps_end=False,
        ineligible=REASON,
    )


def record(configs: Sequence[Config], *, limited: bool = True) -> Purpose:
    """Measure all configs of a list fully."""
    return Purpose(strategy=lambda space, *_: in_order(configs, space.ladder), limited=limited, competing=False)
