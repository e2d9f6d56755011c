"""The calibration of a batch size that is `auto`: small probes, and the size that follows from their memory."""

from collections.abc import Iterable
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from tuner.kept.study import KeptStudy
from tuner.kept.trial import MEMORY_SHARE
from tuner.probe.kinds import FailureKind
from tuner.search.calibration import usual
from tuner.search.choosing import ALL_PROBED, Choice, Done, Price, Why
from tuner.search.history import History
from tuner.search.trials import kept
from tuner.study.batch import BatchFit, Tried, fit, next_size
from tuner.study.launch import same_launch
from tuner.study.space import Config, Space

RAN_OUT = (FailureKind.GPU_OOM, FailureKind.HOST_OOM)
"""The failures that show that a batch was too large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchToFit:
    """The batch size of a case that is to be worked out."""

    parameter: str
    """The parameter that is the batch size."""
    space: Space
    first: int
    """The size of the first probe."""
    probed_samples: int | None
    """The samples at hand in the probes; None where they are unknown."""
    samples: int | None
    """The most samples that any config of the space has at hand; None where they are unknown."""
    total_mib: float | None
    """The memory of the smallest device; None where it is unknown."""

    @property
    def most(self) -> int:
        """The largest size that the study allows."""
        return next(one.bounds[1] for one in self.space.parameters if one.name == self.parameter and one.bounds)

    def config(self, size: int) -> Config:
        """Return the config that is probed at a size: the default config of the smallest rung."""
        return usual(self.space) | {self.parameter: size}

    def next_size(self, trials: Iterable[FrozenTrial]) -> int | None:
        """Return the size to probe next; None once enough is known."""
        return next_size(self._tried(trials), first=self.first, samples=self.probed_samples, most=self.most)

    def fit(self, trials: Iterable[FrozenTrial]) -> BatchFit | None:
        """Work out the size from a study's trials so far; None if no size has run."""
        return fit(self._tried(trials), total_mib=self.total_mib, samples=self.samples, most=self.most)

    def _tried(self, trials: Iterable[FrozenTrial]) -> list[Tried]:
        tried: dict[int, Tried] = {}
        for trial in trials:
            size = trial.params.get(self.parameter)
            if size is None or not trial.state.is_finished() or not same_launch(trial.params, self.config(size)):
                continue
            facts = kept(trial)
            share = facts.cost.get(MEMORY_SHARE)
            used_mib = share * self.total_mib if share and self.total_mib else None
            if not facts.retry:
                ran_out = False if facts.failure in RAN_OUT else None
                tried[size] = Tried(
                    size=size, used_mib=used_mib, fits=True if trial.state == TrialState.COMPLETE else ran_out
                )
        return list(tried.values())


class BatchCalibration:
    """Chooses one small batch size after another until the memory per sample is known.

    A worker that arrives meanwhile measures the size that runs elsewhere, too, so that no worker waits for another.
    """

    def __init__(self, batch: BatchToFit) -> None:
        self._batch = batch

    def ended(self, history: History, price: Price) -> Done | None:
        """End once the size can be worked out, or is known already."""
        is_known = KeptStudy(history.study.user_attrs).batch is not None
        return Done(reason=ALL_PROBED) if is_known or self._batch.next_size(history.trials) is None else None

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the default config with the next size."""
        size = self._batch.next_size(history.trials)
        return None if size is None else Choice(config=self._batch.config(size), why=Why.CALIBRATE)
