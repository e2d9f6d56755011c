"""Decides what a search probes next: the search asks its choosers in order and takes the first answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tuner.search.history import History
from tuner.study.space import Config

Price = Callable[[Config], float]
"""Returns how many trainer starts a probe of a config takes now: 0 in an open session, otherwise 1."""

ALL_PROBED = "every config has been probed or cannot fit"
"""Why a search ends when no chooser has an answer."""


def free(config: Config) -> float:
    """Return the same price for every config: each probe starts its trainer."""
    return 1.0


class Why(Enum):
    """What a probe is for."""

    SEARCH = "to learn about a config"
    CALIBRATE = "to make the rungs of an `auto` ladder, or an `auto` batch size"
    RETRY = "to repeat a failed probe"
    CONFIRM = "to measure a session's best config by the trainer's plain command"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The config to probe next."""

    config: Config
    why: Why = Why.SEARCH
    cold: bool = False
    """Whether the trainer's plain command is to measure it, outside any session."""
    origin: str | None = None
    """The case whose best config this is, where the config comes from another case."""
    takes_s: float | None = None
    """The expected seconds of the probe, where the chooser expects any."""
    left: float | None = None
    """The trials after which the search probably ends, this trial included; None where nothing tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Nothing is left to probe."""

    reason: str


Chooser = Callable[[History, Price], Choice | Done | None]
"""Chooses from a study's history and the prices of now. None means that the next chooser decides.

A chooser keeps nothing that the history does not show, except for its random numbers.
"""


def first_answer(choosers: Sequence[Chooser], history: History, price: Price) -> Choice | Done | None:
    """Ask choosers in order and return the first answer."""
    answers = (choose(history, price) for choose in choosers)
    return next((answer for answer in answers if answer is not None), None)


def retry(history: History, price: Price) -> Choice | None:
    """Choose the config of the first failed trial that is due again."""
    due = history.due()
    if due is None:
        return None
    return Choice(config=dict(due.config), why=Why.RETRY, origin=due.origin)


def confirm_measured(history: History, price: Price) -> Choice | None:
    """Choose the config with the best measurement, if only sessions have measured it: see `History.unconfirmed`."""
    return confirmation(history.unconfirmed())


def confirmation(config: Config | None) -> Choice | None:
    """Return the choice that measures a config again by the trainer's plain command."""
    return None if config is None else Choice(config=config, why=Why.CONFIRM, cold=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """All choosers of a search."""

    choosers: Sequence[Chooser]
    """They choose until the search ends, the most urgent chooser first."""
    confirmer: Chooser = confirm_measured
    """It chooses once the search has ended: the best config, unless the plain command has measured it."""

    def choose(self, history: History, price: Price) -> Choice | Done:
        """Choose what to probe next. A config whose probe has failed is retried outside any session."""
        answer = first_answer(self.choosers, history, price) or Done(reason=ALL_PROBED)
        if isinstance(answer, Choice) and history.failed_before(answer.config):
            return replace(answer, cold=True)
        return answer

    def confirm(self, history: History, price: Price) -> Choice | None:
        """Choose what to measure by the trainer's plain command after the search has ended."""
        answer = self.confirmer(history, price)
        return answer if isinstance(answer, Choice) else None
