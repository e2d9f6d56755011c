"""A trial that this process has asked for."""

from dataclasses import dataclass

from tuner.study.space import Config


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
