"""What the work on a case is for: to search, to recover, to calibrate, to record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.search.beginning import SiblingsFirst
from tuner.search.calibration import CalibrationSampler
from tuner.search.gain.sampler import GainSampler
from tuner.search.ordered import OrderedSampler
from tuner.search.recovery import RecoverySampler
from tuner.search.sampler import CaseSampler, ConfigSampler
from tuner.search.siblings import Sibling
from tuner.study.space import Config, Space
from tuner.study.spec import StudySpec

Siblings = Callable[[], Sequence[Sibling]]
"""Looks up the cases that are like one case; called only where they matter."""
SamplerOf = Callable[[Space, StudySpec, int, Siblings], CaseSampler]
"""Returns what chooses configs, from the space, the study as it reads for the case, the number of trials so far, and
the case's siblings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    sampler: SamplerOf
    limited: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the sampler has nothing left."""
    competing: bool = True
    """Whether a clear loser ends early and the best is measured again cold, or each config counts for its own sake."""
    keeps_end: bool = True
    """Whether the study keeps why the work ended, because this is all the work on the case."""


def _searching(space: Space, spec: StudySpec, resumed_at: int, siblings: Siblings) -> CaseSampler:
    """Choose the best configs of the siblings first, then as the study file says."""
    known = siblings()
    if spec.sampler == "gain":
        return SiblingsFirst(
            space, GainSampler(space, spec.probe, certainty=spec.search.certainty, siblings=known), known
        )
    return SiblingsFirst(space, ConfigSampler(space, spec.search, resumed_at=resumed_at), known)


SEARCH = Purpose(sampler=_searching)
"""Find the best config."""
RECOVER = Purpose(sampler=lambda space, *_: RecoverySampler(space), limited=False, keeps_end=False)
"""Find one config that runs, for a case that has had no success."""
CALIBRATE = Purpose(
    sampler=lambda space, *_: CalibrationSampler(space), limited=False, competing=False, keeps_end=False
)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def record(configs: Sequence[Config], *, limited: bool = True) -> Purpose:
    """Measure a list of configs, each for its own sake."""
    return Purpose(sampler=lambda space, *_: OrderedSampler(space, configs), limited=limited, competing=False)
