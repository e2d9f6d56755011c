"""One search on one table: what a probe shows, what it costs, and when the search has found the best config."""

import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from tuner.export.recorded_table import Header, Recorded, Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import FailureKind, ProbeResult
from tuner.search.frontier import Frontier, out_of_memory
from tuner.search.verdict import Verdict, judge
from tuner.study.space import Config, Space, Value, config_digest
from tuner.study.spec import ParameterSpec, ProbeSpec

WITHIN = 0.99
"""A config counts as found if its value is at least this share of the best value."""


LIMITS = ProbeSpec()
"""The limits of a probe in invented tables."""


def invented_header(
    study: str,
    case: str,
    space: Mapping[str, ParameterSpec],
    devices: tuple[Device, ...],
    *,
    objective: str = "samples_per_s",
    unit: str = "1/s",
) -> Header:
    """Return the header of an invented table."""
    return Header(
        study=study,
        case=case,
        files={},
        objective=objective,
        unit=unit,
        space=dict(space),
        machine={},
        devices=devices,
        source="nvml",
        trainer={"name": "invented"},
        limits=LIMITS,
        date="2000-01-01T00:00:00Z",
        rows=1,
    )


class SpentError(Exception):
    """The search may probe no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What is known of a config beforehand: the truth that scores a search."""

    result: ProbeResult
    verdict: Verdict
    session_key: str | None
    cold_s: float
    """The seconds of a probe that starts the trainer."""
    run_s: float
    """The seconds of the same probe in an open session; where there are no sessions, those after its start."""

    @property
    def value(self) -> float:
        """The recorded value; minus infinity where the config failed or is not eligible."""
        value = self.verdict.value
        return -math.inf if value is None or self.verdict.ineligible else value


class Ground:
    """A table as a benchmark reads it."""

    def __init__(self, table: Table) -> None:
        self.header = table.header
        self.space: Space = replace(table.space, holds=table.holds)
        """The recorded part of the space, where a recording is not complete."""
        self.devices = len(table.header.devices)
        self._table = table
        self._rows: dict[str, Row] = {}
        launched = (table.find(config) for config in table.configs)
        self._ends = Frontier(
            out_of_memory(one.result.config, one.result.failure)
            for one in launched
            if one and one.result.launched and one.result.failure and one.result.failure.kind is FailureKind.GPU_OOM
        )

    @cached_property
    def configs(self) -> list[Config]:
        """The configs that were recorded, or follow from recorded ones."""
        return list(self.space.configs())

    @cached_property
    def best(self) -> Row:
        """The best eligible row."""
        return max(map(self.row, self.configs), key=lambda row: row.value)

    def found(self, config: Config) -> bool:
        """Return whether the config is as good as the best."""
        return self.row(config).value >= WITHIN * self.best.value

    def row(self, config: Mapping[str, Value]) -> Row:
        """Return a config's row. Raises KeyError for a config that was not recorded."""
        digest = config_digest(config)
        if digest not in self._rows:
            self._rows[digest] = self._read(config)
        return self._rows[digest]

    def reading(self, row: Row, draw: random.Random) -> float | None:
        """Draw what a probe reads of a config: its value with normal noise; None where it has no value."""
        value = row.verdict.value
        return None if value is None else value + draw.gauss(0.0, row.verdict.error or 0.0)

    def _read(self, config: Mapping[str, Value]) -> Row:
        recorded = self._table.find(config)
        if recorded is None:
            raise KeyError(f"the table does not hold {dict(config)}")
        result = recorded.result
        cold_s, run_s = self._seconds(recorded if result.launched else self._launched(config))
        verdict = judge(result, self.header.objective, headroom_pct=self.header.limits.headroom_pct)
        return Row(result=result, verdict=verdict, session_key=recorded.session_key, cold_s=cold_s, run_s=run_s)

    def _launched(self, config: Mapping[str, Value]) -> Recorded | None:
        """Return the failure that the recording did not repeat for this config. A search pays for it."""
        beyond = self._ends.exceeded_failure(config)
        return self._table.find(beyond.config) if beyond else None

    def _seconds(self, recorded: Recorded | None) -> tuple[float, float]:
        if recorded is None:
            return 0.0, 0.0
        result = recorded.result
        if result.ready_s is None:
            return result.total_s, result.total_s - (result.start_up_s or 0.0)
        run_s = result.total_s - result.ready_s
        return run_s + self._table.session_s(recorded.session_key), run_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One probe of a search."""

    config: Config
    digest: str
    row: Row
    reading: float | None
    """The objective as the search saw it; None where it saw none."""
    gpu_s: float
    repeat: bool
    """Whether the config had been probed before."""
    warm: bool


def best_reading(steps: list[Step]) -> Config | None:
    """Return the config with the best eligible measurement. Several measurements of a config count by their mean."""
    readings: dict[str, list[float]] = {}
    configs: dict[str, Config] = {}
    for step in steps:
        if step.reading is not None and not step.row.verdict.ineligible:
            readings.setdefault(step.digest, []).append(step.reading)
            configs[step.digest] = step.config
    return configs[max(readings, key=lambda digest: fmean(readings[digest]))] if readings else None


class Probing:
    """Probes a table for one search: noisy measurements, and GPU-seconds for every probe.

    `steps` keeps all probes. Raises SpentError once `most` probes have been made.
    """

    def __init__(self, ground: Ground, seed: int, *, sessions: bool = False, most: int | None = None) -> None:
        self.ground = ground
        self.seed = seed
        self.steps: list[Step] = []
        self.recommended: list[Config | None] = []
        """The recommendation after each step: the best mean measurement, unless the search puts its own belief here."""
        self.left: list[float | None] = []
        """Before each step, the probes until the end as the search tells them; None where it tells none."""
        self.open_session: str | None = None
        self.ended: str | None = None
        """Why the search says that it has ended; None while it goes on, and where nothing but its budget ended it."""
        self._noise = random.Random(seed)
        self._sessions = sessions
        self._most = most
        self._probed: set[str] = set()

    def probe(self, config: Config, *, cold: bool = False) -> Step:
        """Probe a config. The probe is in a session if sessions are on, the config has one and `cold` is false."""
        if self._most is not None and len(self.steps) >= self._most:
            raise SpentError
        row = self.ground.row(config)
        warm = self._sessions and not cold and row.session_key is not None
        seconds = row.run_s if warm and row.session_key == self.open_session else row.cold_s
        self.open_session = row.session_key if warm and not row.result.failure else None
        digest = config_digest(config)
        step = Step(
            config=dict(config),
            digest=digest,
            row=row,
            reading=self.ground.reading(row, self._noise),
            gpu_s=seconds * self.ground.devices,
            repeat=digest in self._probed,
            warm=warm,
        )
        self._probed.add(digest)
        self.steps.append(step)
        self.recommended.append(best_reading(self.steps))
        return step

    def starts_needed(self, config: Config) -> float:
        """Return how many starts a probe of a config needs: 0 in the open session, else 1."""
        if self.open_session is None:
            return 1.0
        return 0.0 if self.ground.row(config).session_key == self.open_session else 1.0


Method = Callable[[Probing], None]
"""A search: it probes until it is done or a SpentError ends it."""


def search(method: Method, probing: Probing) -> None:
    """Run a method to its end."""
    with suppress(SpentError):
        method(probing)
