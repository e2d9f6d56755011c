"""What the search reads of a trial, straight from its attributes and constraints."""

from collections.abc import Container, Mapping
from typing import Any

from tuner.kept.names import (
    CONFIRMS,
    COST,
    ERROR,
    FAILURE,
    INELIGIBLE,
    INELIGIBLE_BEFORE,
    LEASE,
    MEASURED_ON,
    MEMORY,
    ORIGIN,
    PROBE,
    RAN,
    RETRY,
    WARM,
)
from tuner.kept.probe import DEVICES, HEADROOM, OK, PRUNED, KeptProbe, decode
from tuner.probe.counts import MOST
from tuner.probe.kinds import FailureKind

MEMORY_SHARE, START_S, RUN_S = "memory_share", "start_s", "run_s"
"""The cost of a probe: the share of a device's memory in use at its peak, the seconds until it was ready, and those
after."""


class KeptTrial:
    """The facts about one trial, each read when it is asked for: a search reads few facts of many trials.

    The facts come from the trial's probe record. If other programs than the tuner fill a study, its trials have no such
    record. They say the same with the attributes `WARM`, `MEASURED_ON`, `FAILURE`, `COST` and `RAN`. A fact of another
    form than expected counts as unknown.
    """

    __slots__ = ("_attributes", "_constraints", "_record")

    def __init__(self, attributes: Mapping[str, Any], constraints: Mapping[str, float] | None = None) -> None:
        self._attributes, self._constraints = attributes, constraints or {}
        self._record = _as_dict(attributes.get(PROBE))

    @property
    def probe(self) -> KeptProbe | None:
        """The whole probe record; None where the trial has none."""
        return decode(self._attributes.get(PROBE))

    @property
    def digest(self) -> str | None:
        """What identifies the trial's config; None where no record says it."""
        return _text(self._record.get("digest"))

    @property
    def retry(self) -> bool:
        """Whether the trial failed and its config is to be probed again."""
        return RETRY in self._attributes

    @property
    def lease(self) -> object:
        """Who runs the trial, for `Lease.read`."""
        return self._attributes.get(LEASE)

    @property
    def confirms(self) -> bool:
        """Whether the trial measures a config again, by the trainer's plain command."""
        return CONFIRMS in self._attributes

    @property
    def origin(self) -> str | None:
        """The case in which the trial's config is the best, where the config comes from there."""
        return _text(self._attributes.get(ORIGIN))

    @property
    def error(self) -> float | None:
        """The standard error of the value."""
        return _number(self._attributes.get(ERROR))

    @property
    def warm(self) -> bool:
        """Whether a session served the probe."""
        return bool(self._record.get("warm")) if self._record else WARM in self._attributes

    @property
    def beside(self) -> bool:
        """Whether other probes of the study ran on the same machine meanwhile, as far as the study counts them."""
        return bool(self._record.get("beside"))

    @property
    def failure(self) -> str | None:
        """The kind of the failure; None where no failure is known."""
        if self.missing_gib > 0.0:
            return FailureKind.GPU_OOM
        return failure_of(_text(self._record.get("status"))) if self._record else _text(self._attributes.get(FAILURE))

    @property
    def ineligible(self) -> bool:
        """Whether the trial's config must not be the best although it ran."""
        return any(self._constraints.get(name) for name in (INELIGIBLE, INELIGIBLE_BEFORE))

    @property
    def missing_gib(self) -> float:
        """The device memory that was missing, in GiB; 0 where the config fitted or that is unknown."""
        return _number(self._constraints.get(MEMORY)) or 0.0

    @property
    def measured_on(self) -> str:
        """Which devices measured the trial; empty where that is unknown. Two hosts may differ by several points."""
        here = _as_dict(self._record.get("host")).get(DEVICES) if self._record else self._attributes.get(MEASURED_ON)
        return _text(here) or ""

    @property
    def total_s(self) -> float | None:
        """The seconds that the probe took."""
        return _number(self._record.get("total_s"))

    @property
    def samples_per_s(self) -> float | None:
        """The samples that all ranks made in a second."""
        return _number(self._record.get("samples_per_s"))

    @property
    def cost(self) -> Mapping[str, float]:
        """What a probe took that gave a number, as `cost` returns it; empty where that is unknown."""
        if not self._record:
            known = {name: _number(amount) for name, amount in _as_dict(self._attributes.get(COST)).items()}
            return {name: amount for name, amount in known.items() if amount and amount > 0.0}
        return cost(self._record) if _has_number(_text(self._record.get("status"))) else {}

    @property
    def ran(self) -> bool:
        """Whether a failed probe spent most of its time after its start."""
        if not self._record:
            return RAN in self._attributes
        return not _has_number(_text(self._record.get("status"))) and mostly_ran(self._record)


def is_kept(names: Container[str], probe: KeptProbe | None, *, finished: bool) -> bool:
    """Return whether the tuner kept a trial: another program's trial has no such attributes, or no whole record.

    `names` are those of its attributes, and `probe` is its record where that can be read.
    """
    if PROBE in names:
        return probe is not None
    return LEASE in names or (finished and RETRY in names)


def failure_of(status: str | None) -> str | None:
    """Return the kind of the failure that a probe's status names; None where the probe ran."""
    return None if _has_number(status) else status


def cost(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what a probe took, as far as its record says: `memory_share`, `start_s` and `run_s`."""
    headroom_pct = _number(_as_dict(record.get("metrics")).get(HEADROOM))
    start_s = _number(record.get("ready_s" if record.get("warm") else "start_up_s"))
    total_s = _number(record.get("total_s"))
    took = {
        MEMORY_SHARE: None if headroom_pct is None else 1.0 - headroom_pct / 100.0,
        START_S: start_s,
        RUN_S: None if start_s is None or total_s is None else total_s - start_s,
    }
    return {name: amount for name, amount in took.items() if amount and amount > 0.0}


def mostly_ran(record: Mapping[str, Any]) -> bool:
    """Check whether a probe spent more of its time after its start than before."""
    took = cost(record)
    return took.get(RUN_S, 0.0) > took.get(START_S, 0.0)


def _has_number(status: str | None) -> bool:
    return status in {OK, PRUNED}


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and abs(value) <= MOST else None
