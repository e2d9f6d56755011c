"""A trial that this process has asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, Trial

from tuner.kept.names import CALIBRATES, CONFIRMS, ORIGIN
from tuner.search.choosing import Choice, Why
from tuner.search.trials import failures_in_a_row, suggest
from tuner.study.space import Config, Space


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A trial that this process now runs."""

    number: int
    config: Config
    attempt: int
    """1 + the number of failures in a row that this config has had just before."""
    cold: bool
    """Whether the trainer's plain command measures the config: a session has failed, or has found the best config."""
    confirms: bool = False
    """Whether the trial measures the best config of the sessions again. Nothing ends such a probe early."""
    origin: str | None = None
    """The other case in which this config is the best, if the config comes from another case."""
    left: float | None = None
    """The trials after which the search probably ends, this trial included; None where nothing tells."""


def asked_for(trial: Trial, space: Space, choice: Choice, before: Sequence[FrozenTrial]) -> Asked:
    """Read the config of a trial that has just begun, and store in the trial why it was chosen.

    `before` are the study's trials without this one.
    """
    config = suggest(trial, space)
    confirms = choice.why is Why.CONFIRM
    if confirms:
        trial.set_user_attr(CONFIRMS, True)
    if choice.why is Why.CALIBRATE:
        trial.set_user_attr(CALIBRATES, True)
    if choice.origin:
        trial.set_user_attr(ORIGIN, choice.origin)
    return Asked(
        number=trial.number,
        config=config,
        attempt=1 + failures_in_a_row(before, config),
        cold=choice.cold,
        confirms=confirms,
        origin=choice.origin,
        left=choice.left,
    )
