"""When a search has found enough."""

from dataclasses import dataclass

from tuner.probe.units import HOUR_S, duration
from tuner.search.gain.prospects import Prospect
from tuner.study.spec import TRAINING_HOURS


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """How well a search must know the best config."""

    training_hours: float = TRAINING_HOURS
    """The length of the training that will use the best config.

    The search ends when more probes are expected to take more time than this training would gain.
    """
    ceiling: float = float("inf")
    """No value of the objective is higher: 100 for an objective in percent."""

    @property
    def training_s(self) -> float:
        """The seconds of the training."""
        return self.training_hours * HOUR_S

    def in_words(self, left: Prospect, lost: float, bound: float) -> str:
        """Say what the search leaves unfound, and why it does. `lost` and `bound`: see `prospects.shortfall`."""
        gained, taken = duration(left.gained_s), duration(left.takes_s)
        return (
            f"{100 * lost:.2g}% may be left, at most {100 * bound:.2g}%: "
            f"{gained} of a {self.training_hours:g}-hour training; to find it takes {taken}"
        )
