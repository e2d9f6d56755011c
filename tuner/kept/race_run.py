"""The records of a race: its runs, and the claims of runs that processes make now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tuner.kept.optuna_tables import RACE
from tuner.kept.storable import storable
from tuner.probe.counting import MOST
from tuner.study.space import Config

Number = Annotated[float, Field(ge=-MOST, le=MOST)]
"""As large as the numbers that a probe reads; of larger numbers, no mean could be computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRun:
    """One run of a race. Times count from the end of the run's first iteration."""

    config: Config
    seed: int
    seconds: Number
    """How long the run was to train."""
    started_at: str = ""
    """UTC, ISO 8601."""
    start_up_s: float | None = None
    trained_s: Number = 0.0
    iterations_per_s: float | None = None
    samples_per_s: float | None = None
    """The samples per second of all ranks together."""
    curve: tuple[tuple[Number, Number], ...] = ()
    """The scores as pairs of seconds and score, at most `MOST_POINTS`."""
    score_source: str | None = None
    """What the scores were read from, as the trainer names it; None where no score was read, or by earlier versions."""
    failure: str | None = None
    """Why the config has failed; None where it did not."""
    host: Mapping[str, str] = field(default_factory=dict)

    @property
    def why_out(self) -> str | None:
        """Why the config trains no more in the race; None where it may go on."""
        if self.failure is not None or self.trained_s >= self.seconds:
            return self.failure
        return (
            f"the trainer ended by itself after {self.trained_s:.3g} of {self.seconds:.3g} s of training; raise the "
            "command's own limit of steps, or give fewer --hours"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run of a race that a process makes now. It stands in the run's place until the run has ended."""

    config: Config
    seed: int
    lease: Mapping[str, Any]
    """The process, as `tuner.store.leases.Lease.write` gives it."""


def scored_by(runs: Iterable[KeptRun], source: str | None) -> list[KeptRun]:
    """Return the runs whose scores were read from `source`, and those of which it is not known."""
    return [run for run in runs if run.score_source in (None, source)]


def newest_scored(runs: Sequence[KeptRun]) -> list[KeptRun]:
    """Return the runs whose scores were read from the source of the newest score."""
    sources = (run.score_source for run in reversed(runs) if run.score_source is not None)
    return scored_by(runs, next(sources, None))


_RUN = TypeAdapter(KeptRun)
_CLAIM = TypeAdapter(dict[Literal["claim"], Claim])


def encode(run: KeptRun) -> dict[str, Any]:
    """Return the run as values of JSON."""
    return storable(asdict(run))


def encode_claim(claim: Claim) -> dict[str, Any]:
    """Return the claim as values of JSON, which no reader takes for a run."""
    return {"claim": storable(asdict(claim))}


def decode_claim(attribute: object) -> Claim | None:
    """Return the claim that `encode_claim` gave; None where the attribute is not such a record."""
    try:
        return _CLAIM.validate_python(attribute).get("claim")
    except ValidationError:
        return None


def decode(attribute: object) -> KeptRun | None:
    """Return the run that `encode` gave; None where the attribute is not such a record."""
    try:
        return _RUN.validate_python(attribute)
    except (ValidationError, TypeError):
        return None


def place(name: str) -> int | None:
    """Return the number of the run that a study's attribute of this name holds; None for other attributes."""
    number = name.removeprefix(RACE)
    return int(number) if number != name and number.isdecimal() else None
