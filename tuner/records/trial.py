"""One trial in the form that the whole package reads, and the record of its probe, with their encoder and decoder.

A probe is a short run of the training with one config, and a trial is its record in Optuna. A session is a started
trainer that serves several probes. A soak is a long trial that shows whether memory lasts. A config is eligible if it
may be the best.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from statistics import fmean
from typing import Any

from pydantic import ConfigDict, with_config
from sqlalchemy import Row

from tuner.probe import METRICS, MOST, DeviceSummary, FailureKind, ProbeNumbers, error_of_mean, of_known
from tuner.records import schema
from tuner.records.schema import read_json, record_of, storable
from tuner.study import Config, launch_digest

OK = "ok"
"""The status of a probe that gave a number."""
PRUNED = "pruned"
"""The status of a probe that the pruner stopped."""
NO_READING = "no_reading"
"""The status of a probe that ran and gave no number."""
INTERRUPTED = "interrupted"
"""The status of a probe that something else than its config ended."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRecord(ProbeNumbers):
    """Everything that the database keeps of one probe: what it showed, how it was judged, and where its files lie.

    The fields up to `warm` are those of `ProbeResult`. Paths below the study's folder are relative to it.
    """

    config: Config = field(default_factory=dict)
    plan_digest: str | None = None
    started_at: str | None = None
    total_s: float | None = None
    iterations: int | None = None
    level_changed: bool | None = None
    warm: bool | None = None
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
        """The identities of the devices that measured the probe; None where the record has none."""
        return self.host.get(DEVICES)

    @property
    def detail(self) -> str:
        """Why the probe failed, was stopped or does not count; otherwise the notes about it."""
        return (self.failure and self.failure.detail) or self.stopped or self.ineligible or "; ".join(self.notes)


DEVICES = "devices"
"""Key of `ProbeRecord.host` for the identities of the devices."""


def encode(probe: ProbeRecord) -> dict[str, Any]:
    """Return the probe as values of JSON that every database can store."""
    return storable(asdict(probe))


def stored_facts(rows: Iterable[Row[Any]]) -> dict[str, Any]:
    """Return a trial's attributes from their rows in the table `ATTRIBUTES`: name → value of JSON.

    The record of the probe is decoded.
    """
    facts = {row.key: read_json(row.value_json) for row in rows}
    return {name: record_of(ProbeRecord, fact) if name == schema.PROBE else fact for name, fact in facts.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class SoakSettings:
    """How a soak is made: with which flags and limit of memory, for how long, and for which training."""

    flags: str = ""
    command: str = ""
    memory_mib: float | None = None
    """The limit of each device's memory; None for the device's own."""
    minutes: float = 0.0
    """The longest that the soak was to take."""
    hours: float = 0.0
    """The length of the training for which memory was to last."""
    iterations: int | None = None
    """The same in iterations, which then counts in place of hours."""

    @property
    def kind(self) -> tuple[str, str, float | None]:
        """What decides how much memory a soak takes. Soaks of different kinds say nothing about each other."""
        return self.flags, self.command, self.memory_mib


COMPLETE = "COMPLETE"
PRUNED_STATE = "PRUNED"
FAIL = "FAIL"
RUNNING = "RUNNING"
FINISHED = (COMPLETE, PRUNED_STATE, FAIL)
"""The states of trials that have ended, as Optuna names them."""
MEMORY_SHARE = "memory_share"
"""Cost of a probe: the share of a device's memory in use at its peak."""
START_S = "start_s"
"""Cost of a probe: the seconds until it was ready."""
RUN_S = "run_s"
"""Cost of a probe: the seconds after that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial. What is unknown is None or empty.

    Its facts come from the trial's probe record. If another program than the tuner fills a study, its trials have no
    such record. They may say with the attribute `COST` what the trial took.
    """

    number: int = 0
    case: str = ""
    state: str = COMPLETE
    config: Config = field(default_factory=dict)
    values: tuple[float, ...] = ()
    """Each objective."""
    error: float | None = None
    """The standard error of the first objective."""
    probe: ProbeRecord = field(default_factory=ProbeRecord)
    """Empty while the trial runs."""
    retry: bool = False
    """Whether the trial failed and its config is to be probed again."""
    confirms: bool = False
    """Whether the trial measures a config again, by the trainer's plain command."""
    soak: SoakSettings | None = None
    """How the trial shows whether the config's memory lasts; None where it does not show that."""
    grows_with: str | None = None
    """The parameter with whose value memory grows, or "", after the user reported that a training ran out of memory."""
    origin: str | None = None
    """The case in which the trial's config is the best, where the config comes from there."""
    lease: object = None
    """Which process runs the trial, as JSON that `Lease.read` reads."""
    missing_gib: float = 0.0
    """The device memory that was missing, in GiB; 0 where the config fitted or that is unknown."""
    is_barred: bool = False
    """Whether the trial's config must not be the best although it ran."""
    stored_cost: Mapping[str, float] | None = None
    """The attribute `COST`, in the form that `cost` returns; None for a trial without it."""
    started: datetime | None = None
    """UTC, naive."""
    completed: datetime | None = None
    """UTC, naive."""

    @property
    def launch_key(self) -> str:
        """The launch key, which is equal for trials of the same config."""
        return self.probe.digest or launch_digest(self.config)

    @property
    def value(self) -> float | None:
        """The first objective; None without a value."""
        return self.values[0] if self.values else None

    @property
    def status(self) -> str | None:
        """`ok`, `pruned`, `no_reading` or a failure kind; None while the trial runs."""
        return self.probe.status or (INTERRUPTED if self.state in FINISHED else None)

    @property
    def failure(self) -> str | None:
        """The kind of the failure; None for a probe that ran, even if the pruner stopped it, or where it is unknown."""
        if self.missing_gib > 0.0:  # whatever the record says
            return FailureKind.GPU_OOM
        return None if self.probe.status in {OK, PRUNED} else self.probe.status

    @property
    def warm(self) -> bool:
        """Whether a session served the probe; otherwise the trainer's plain command made it."""
        return bool(self.probe.warm)

    @property
    def measured_on(self) -> str:
        """Which devices measured the trial; empty where that is unknown."""
        return self.probe.measured_on or ""

    @property
    def soaks(self) -> bool:
        """Whether the trial shows if the config's memory lasts."""
        return self.soak is not None

    @property
    def cost(self) -> Mapping[str, float]:
        """What the probe took, to predict what other probes will take; in the form of the function `cost`.

        Empty where that is unknown, and where the probe gave no number.
        """
        if self.stored_cost is not None:
            return self.stored_cost
        return cost(self.probe) if self.probe.status in {OK, PRUNED} else {}

    @property
    def failed_after_start(self) -> bool:
        """Whether the probe failed once its start was over, for which it has a time limit of its own."""
        return self.probe.status not in {OK, PRUNED} and RUN_S in cost(self.probe)

    @property
    def total_s(self) -> float | None:
        """The seconds that the probe took; None if unknown."""
        return _number(self.probe.total_s)

    @property
    def widened_error(self) -> float | None:
        """The standard error of `value` to print: wider than `error` if other programs disturbed the reading."""
        return error_with_disturbance(self.value or 0.0, self.error, possible_loss(self.probe.devices))

    @property
    def printed_metrics(self) -> dict[str, float | None]:
        """The metrics of the probe to print: their errors are widened as `widened_error` is."""
        return with_widened_errors(self.probe.metrics, possible_loss(self.probe.devices))

    @property
    def samples_per_s(self) -> float | None:
        """The samples that all ranks made in a second; None if unknown."""
        return _number(self.probe.samples_per_s)

    @property
    def memory_share_pct(self) -> float | None:
        """The largest share of a device's memory in use at its peak, in percent; None if unknown."""
        peaks = ((device.mem_peak_mib, device.mem_total_mib) for device in self.probe.devices)
        return of_known(max, [100.0 * peak / total for peak, total in peaks if peak is not None and total])

    @property
    def failed(self) -> bool:
        """Whether the config failed for good: it is not probed again.

        A failure that is the config's fault is stored as pruned, so that samplers learn from it. Any other failure is
        for good if the plain command made the probe, and no retry is to come.
        """
        if self.state == PRUNED_STATE:
            return self.failure is not None
        return self.state == FAIL and not (self.warm or self.retry)

    @property
    def counts(self) -> bool:
        """Whether the trial shows anything about its config. A failure that is not for good shows nothing."""
        return self.failed or self.state in {COMPLETE, PRUNED_STATE}

    @property
    def may_be_best(self) -> bool:
        """Whether the trial has measured a config that may be the best."""
        return self.state == COMPLETE and bool(self.values) and not self.is_barred


def error_with_disturbance(value: float, error: float | None, possible_loss: float) -> float | None:
    """Return the standard error of a value to print: wider where other programs may have made the value too small.

    Without them, the value may be larger by up to `possible_loss` times itself. The probability of a difference is
    taken to rise in proportion to its size, because a training mostly waits for its slowest thread. The root mean
    square of the difference is then the largest one divided by √2.

    Args:
        value: The value, which may be the mean of several readings.
        error: Its own standard error; None, which is also returned then, where it is unknown.
        possible_loss: That of the reading, or its mean over the readings. More readings do not reduce it, because
            other programs mostly disturb all readings of a config alike.
    """
    return None if error is None else math.hypot(error, value * possible_loss / math.sqrt(2.0))


def with_widened_errors(metrics: Mapping[str, float | None], possible_loss: float) -> dict[str, float | None]:
    """Return metrics whose standard errors, `NAME_se`, are as wide as other programs may have made the values wrong.

    `possible_loss`: by how many times itself each value may be larger without those programs.
    """
    return {
        name: error_with_disturbance(metrics.get(name.removesuffix("_se")) or 0.0, number, possible_loss)
        if name.endswith("_se")
        else number
        for name, number in metrics.items()
    }


def possible_loss(devices: Iterable[DeviceSummary]) -> float:
    """Return by how many times itself a reading may be larger without the waits for a processor that others used.

    `devices`: what the devices did meanwhile, with these waits.
    """
    delayed = (of_known(max, (device.delayed_mean_pct for device in devices)) or 0.0) / 100.0
    if delayed < 0.02:  # usual on a machine that runs nothing else
        return 0.0
    delayed = min(delayed, 0.9)  # nothing is known of a rank that hardly runs (chosen)
    return delayed / (1.0 - delayed)


def attributes(probe: ProbeRecord, *, retry: bool, error: float | None) -> dict[str, Any]:
    """Return the user attributes of a trial that has ended: name → value of JSON. `read` reads them back.

    Some facts of the record stand beside it, for people who look at the trial in optuna-dashboard.
    """
    facts = {schema.PROBE: encode(probe), schema.RETRY: retry, schema.ERROR: error, "verdict": probe.status}
    facts |= {name: probe.metrics.get(name) for name in ("samples_per_s", "mem_peak_mib")}
    return {name: fact for name, fact in facts.items() if fact}


def read(
    attributes: Mapping[str, Any],
    constraints: Mapping[str, float] | None = None,
    *,
    state: str = COMPLETE,
    config: Config | None = None,
    **facts: Any,
) -> TrialRecord:
    """Return the trial that has these attributes and Optuna constraints.

    An attribute of another form than expected counts as unknown.

    Args:
        attributes: Name → value of JSON. The record of the probe may be decoded already.
        constraints: Name → Optuna constraint.
        state: The state, as Optuna names it.
        config: The config; None for that of the record.
        **facts: The other fields of the trial.
    """
    stored = attributes.get(schema.PROBE)
    record = stored if isinstance(stored, ProbeRecord) else record_of(ProbeRecord, stored)
    violations = constraints or {}
    missing_gib = _number(violations.get(schema.MEMORY)) or 0.0
    status = FailureKind.GPU_OOM if missing_gib else {COMPLETE: OK, PRUNED_STATE: PRUNED}.get(state)
    probe = record or ProbeRecord(status=status)
    return TrialRecord(
        state=state,
        config=probe.config if config is None else config,
        error=_number(attributes.get(schema.ERROR)),
        probe=probe,
        retry=schema.RETRY in attributes,
        confirms=schema.CONFIRMS in attributes,
        soak=record_of(SoakSettings, attributes[schema.SOAKS]) if schema.SOAKS in attributes else None,
        grows_with=_text(attributes.get(schema.REPORTED_OOM)),
        origin=_text(attributes.get(schema.ORIGIN)),
        lease=attributes.get(schema.LEASE),
        missing_gib=missing_gib,
        is_barred=probe.ineligible is not None or bool(violations.get(schema.INELIGIBLE)),
        stored_cost=_amounts(attributes[schema.COST]) if schema.COST in attributes else None,
        **facts,
    )


def is_whole(attributes: Mapping[str, Any], *, state: str, values: int, objectives: int) -> bool:
    """Return whether the tuner, rather than another program, stored a trial, and none of it is missing or damaged.

    Args:
        attributes: As `stored_facts` returns them. The record of the probe is None where it cannot be read.
        state: The state, as Optuna names it.
        values: The number of values that are stored.
        objectives: The number of values that a complete trial has.
    """
    if state == COMPLETE and values != objectives:
        return False
    if schema.PROBE in attributes:
        return attributes[schema.PROBE] is not None
    # a trial that runs has a lease; a trial without any record that has ended is one that is to be repeated
    return schema.LEASE in attributes or (state in FINISHED and schema.RETRY in attributes)


def cost(probe: ProbeRecord) -> dict[str, float]:
    """Return what a probe took, as far as its record says: the amounts `MEMORY_SHARE`, `START_S` and `RUN_S`."""
    headroom_pct = probe.metrics.get("headroom_pct")
    start_s = probe.ready_s if probe.warm else probe.start_up_s  # a session has started its trainer before
    took = {
        MEMORY_SHARE: None if headroom_pct is None else 1.0 - headroom_pct / 100.0,
        START_S: start_s,
        RUN_S: None if start_s is None or probe.total_s is None else probe.total_s - start_s,
    }
    return _amounts(took)


def pooled(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the newest of several trials of one config, with the numbers of all of them pooled.

    A number that was measured over a window becomes the mean, with its standard error. An extreme becomes the extreme
    of all. Times, counts and files stay those of the newest trial. Device summaries are pooled over the trials that
    have as many devices as the newest.
    """
    newest = trials[-1]
    if len(trials) == 1:
        return newest
    metrics_of_trials = [trial.probe.metrics for trial in trials]
    metrics = dict(newest.probe.metrics)
    for metric in METRICS:
        number = of_known(metric.combine, [of_trial.get(metric.name) for of_trial in metrics_of_trials])
        if number is not None:
            metrics[metric.name] = number
        if metric.error_of:  # replaced even by None: the error of the newest trial alone is not that of a mean
            metrics[f"{metric.name}_se"] = _error(metric.name, metrics_of_trials)
    with_as_many_devices = [
        trial.probe.devices for trial in trials if len(trial.probe.devices) == len(newest.probe.devices)
    ]
    probe = replace(
        newest.probe,
        samples_per_s=of_known(fmean, [trial.samples_per_s for trial in trials]),
        metrics=metrics,
        devices=tuple(map(_pooled_device, zip(*with_as_many_devices, strict=True))),
    )
    return replace(newest, probe=probe)


def _pooled_device(summaries: Sequence[DeviceSummary]) -> DeviceSummary:
    """Return the newest summary of one device with the numbers of all its summaries pooled."""
    return replace(
        summaries[-1],
        util_mean_pct=of_known(fmean, [device.util_mean_pct for device in summaries]),
        util_max_pct=of_known(max, [device.util_max_pct for device in summaries]),
        mem_peak_mib=of_known(max, [device.mem_peak_mib for device in summaries]),
        power_max_w=of_known(max, [device.power_max_w for device in summaries]),
    )


def _error(name: str, metrics: Sequence[Mapping[str, float | None]]) -> float | None:
    """Return the standard error of the mean of a metric over some trials; None where none is known."""
    known = [(value, of_trial.get(f"{name}_se")) for of_trial in metrics if (value := of_trial.get(name)) is not None]
    return error_of_mean([value for value, _ in known], [error for _, error in known])


def _amounts(attribute: object) -> dict[str, float]:
    """Return the positive numbers of an attribute `COST`, by name; empty where it has another form.

    Some programs store a single number: it is that of `RUN_S`.
    """
    stored = attribute if isinstance(attribute, dict) else {RUN_S: attribute}
    numbers = {name: _number(amount) for name, amount in stored.items()}
    return {name: amount for name, amount in numbers.items() if amount and amount > 0.0}


def _text(value: object) -> str | None:
    """Return a text; None for anything else."""
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    """Return a number that is not too large to compute with; None for anything else."""
    return value if isinstance(value, int | float) and abs(value) <= MOST else None
