"""A study's trials as numbers: what each config read, what cannot run, and what probes took."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from tuner.probe.kinds import FailureKind
from tuner.search.frontier import DEVICE_MEMORY, MEMORYLESS, Frontier, Need, OutOfMemory
from tuner.search.growth import Line
from tuner.search.siblings import Cost, Sibling, amounts
from tuner.search.standing import eligible
from tuner.search.trials import kept, launch_key, launched, readings
from tuner.study.space import LADDER, Config, Space, config_digest

_RUN = Need(growing=(LADDER, "update_epochs"), ignored=frozenset())
"""Seconds of iterations; how they hang on the size of a minibatch, or on a command's own parameters, is left open."""
_NEEDS: Mapping[Any, Need] = {
    FailureKind.GPU_OOM: DEVICE_MEMORY,
    FailureKind.HOST_OOM: Need(ignored=frozenset({"update_epochs"})),
    FailureKind.TOO_SLOW: Need(growing=(LADDER,), ignored=MEMORYLESS | {"batch_size"}),  # nearly always a start
}
"""Failures that show where memory or time ends → what the need for it hangs on."""


@dataclass(slots=True)
class Seen:
    """A config that gave numbers; larger ones are better."""

    config: Config
    values: list[float] = field(default_factory=list)
    errors: list[float | None] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    """Which measured each value; empty where that is not known."""
    eligible: bool = False
    """As `standing.eligible` says."""


class Observed:
    """What a study's trials tell about configs, the pruner's patience aside.

    A probe that the pruner stopped counts as a reading, of a config that is not eligible.
    """

    def __init__(self, trials: Iterable[FrozenTrial], *, sign: float = 1.0, siblings: Sequence[Sibling] = ()) -> None:
        """`sign` is -1 where the study looks for small values; `siblings` come likest first."""
        self._siblings = siblings
        self.seen: dict[str, Seen] = {}
        """By digest."""
        self.here = ""
        """Which devices measured the newest value."""
        self.closed: set[str] = set()
        """Digests of what runs now or has failed, and has given no number since."""
        self._costs: list[Cost] = []
        self._walls: list[OutOfMemory] = []
        told = list(trials)
        for trial in told:
            self._note(trial, launched(trial.params), sign)
        known = eligible(readings(told))
        for one in self.seen.values():
            one.eligible = launch_key(one.config) in known
        self.walls = Frontier(self._walls)
        """Where memory or time ends: beyond it, a config needs no less of either than one that ran out of it."""

    def lines(self, name: str, space: Space) -> list[Line]:
        """Give what of this part of the cost is known in each sibling, the likest one last, and then in this study."""
        return [
            amounts(costs, name, space) for costs in (*(one.costs for one in reversed(self._siblings)), self._costs)
        ]

    def _note(self, trial: FrozenTrial, config: Config, sign: float) -> None:
        digest, number = config_digest(config), _number(trial)
        if number is None:
            self._note_failure(trial, config)
            return
        self.closed.discard(digest)
        one = self.seen.setdefault(digest, Seen(config))
        one.values.append(sign * number)
        facts = kept(trial)
        one.errors.append(facts.error)
        self.here = facts.measured_on
        one.devices.append(self.here)
        if took := facts.cost:
            self._costs.append((config, took))

    def _note_failure(self, trial: FrozenTrial, config: Config) -> None:
        self.closed.add(config_digest(config))
        facts = kept(trial)
        need = _RUN if facts.failure == FailureKind.TOO_SLOW and facts.ran else _NEEDS.get(facts.failure)
        if need is not None:
            self._walls.append(OutOfMemory(config, facts.missing_gib or 1.0, need))


def _number(trial: FrozenTrial) -> float | None:
    """Give what a trial read of the first objective; where a pruner stopped it, what it had read by then."""
    if trial.state == TrialState.COMPLETE:
        return trial.values[0]
    stopped_at = max(trial.intermediate_values, default=None) if trial.state == TrialState.PRUNED else None
    return None if stopped_at is None else trial.intermediate_values[stopped_at]
