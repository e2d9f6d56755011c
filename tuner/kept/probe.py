"""The record of a probe: a typed value, and its form in the database."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from tuner.kept.storable import is_plain, read_json, storable
from tuner.probe.result import DeviceSummary, Failure
from tuner.study.space import Config

OK, PRUNED, NO_READING, INTERRUPTED = "ok", "pruned", "no_reading", "interrupted"
"""The status of a probe that gave a number, that the pruner stopped, that ran and gave no number, and that something
else than its config ended."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, kw_only=True, slots=True)
class KeptProbe:
    """Everything that is kept of one probe; None where it is unknown.

    The fields up to `ready_s` are those of `ProbeResult`. The others say how the probe was judged and where its files
    lie. Paths below the study's folder are relative to it.
    """

    config: Config = field(default_factory=dict)
    plan_digest: str | None = None
    started_at: str | None = None
    total_s: float | None = None
    start_up_s: float | None = None
    window_s: float | None = None
    trained_s: float | None = None
    iterations: int | None = None
    samples: int | None = None
    total_batch: float | None = None
    samples_per_s: float | None = None
    samples_per_s_se: float | None = None
    busy_spread_pct: float | None = None
    alloc_retries: int | None = None
    devices: tuple[DeviceSummary, ...] = ()
    failure: Failure | None = None
    stopped: str | None = None
    level_changed: bool | None = None
    notes: tuple[str, ...] = ()
    host: Mapping[str, str] = field(default_factory=dict)
    warm: bool | None = None
    ready_s: float | None = None
    digest: str | None = None
    """Names what is launched: configs that launch the same probe have the same digest."""
    status: str | None = None
    """`ok`, `pruned`, `no_reading` or the kind of the failure."""
    ineligible: str | None = None
    """Why the config must not be the best although it ran."""
    launched: bool | None = None
    """Whether a process was started for the probe."""
    metrics: Mapping[str, int | float | None] = field(default_factory=dict)
    """Metric name → number."""
    agent_config: str | None = None
    base_agent: str | None = None
    session_key: str | None = None
    """Names the session that served the probe."""
    out_dir: str | None = None
    """The probe's folder; empty where nothing was launched."""

    @property
    def measured_on(self) -> str | None:
        """Return the identities of the devices that measured the probe."""
        return self.host.get(DEVICES)


DEVICES = "devices"
"""Key of `KeptProbe.host` for the identities of the devices."""
HEADROOM = "headroom_pct"
"""The metric that says how much of a device's memory stayed free at its peak."""
_PROBE = TypeAdapter(KeptProbe)


def encode(probe: KeptProbe) -> dict[str, Any]:
    """Return the probe as values of JSON that every database can store."""
    return storable(asdict(probe))


def decode(attribute: object) -> KeptProbe | None:
    """Return the probe that `encode` gave; None where the attribute is missing or not such a record."""
    if not isinstance(attribute, dict):
        return None
    try:
        return _PROBE.validate_python(attribute)
    except (ValidationError, RecursionError):
        return None


def decode_json(document: object) -> KeptProbe | None:
    """Return the probe in a JSON text; None where the text is missing or not such a record."""
    if isinstance(document, str) and is_plain(document):
        with suppress(ValidationError):
            return _PROBE.validate_json(document)
    return decode(read_json(document))
