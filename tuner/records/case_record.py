"""What the study of a case keeps beside its trials: its identity, the record of the case, and facts fixed for good.

A case is one training job, and its study holds all trials of it. The identity of a study is its settings that must not
change, because they decide what its measurements mean. The ladder is the parameter that decides how much memory a
config needs, and its values are the rungs. A race trains a few configs for the same time, to see which learns most.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from tuner.probe import MOST
from tuner.records import schema
from tuner.study import FILES, LADDER, Case, Config, ProbeSpec, masked_trainer

STOPPED_EARLY = "the search was stopped early; rerun to resume"
"""The sentence about a search that a person or a crash has stopped."""
OUT_OF_HOURS = "the search stopped at its limit of --hours; rerun to resume"
"""The sentence about a search that a limit of time has stopped."""
RECORDED = "recorded"
"""Key in a replayed trainer's fingerprint: when the table of the case was recorded. Each case has its own table."""


def comparable(identity: Mapping[str, Any]) -> list[Any]:
    """Return the parts of an identity that two cases must share so that one can learn from the other."""
    trainer = identity.get("trainer")
    facts = {name: fact for name, fact in trainer.items() if name != RECORDED} if isinstance(trainer, dict) else {}
    return [facts, *(identity.get(part) for part in ("objective", "constraints", "source", "devices"))]


def in_newest_form(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity as this version stores it, so that both can be compared.

    Earlier versions stored the pruner's `margin_pct`, and masked fewer secret keys.
    """
    newest, pruner, trainer = dict(identity), identity.get("pruner"), identity.get("trainer")
    if isinstance(pruner, dict):
        newest["pruner"] = {key: value for key, value in pruner.items() if key != "margin_pct"}
    if isinstance(trainer, dict):
        newest["trainer"] = masked_trainer(trainer)
    return newest


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRecord:
    """What is kept of a case: what the trainer launches, and what the values were measured with."""

    case: str = ""
    method: str = ""
    robot: tuple[str, ...] | None = None
    """The words that name robot and task; None in older records, where the case's name says it."""
    mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """The trainer's own files: name of the option → path."""
    trainer: Mapping[str, Any] = field(default_factory=dict)
    """What makes the trainer's results comparable."""
    source: str | None = None
    """What measured utilisation."""
    devices: tuple[str, ...] = ()
    objective: str = ""
    """The metric that the study maximises; several metrics are separated by commas."""
    ladder: str | None = LADDER
    """The parameter whose values are the rungs; None where there is no ladder."""
    defaults: tuple[Config, ...] = ()
    """The default config of each rung, with which other configs of the rung are compared."""
    learning: tuple[str, ...] = ()
    """The parameters that change what is learnt."""
    max_start_seconds: float | None = None
    """The time limit of a start, in seconds; None in older records, where `max_seconds` included the start."""
    max_seconds: float | None = None
    """The time limit of a probe from its first iteration on, in seconds; None in older records."""
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, if it is: the JSON of `tuner.export.recorded_table.Circumstances`."""

    @property
    def trainer_name(self) -> str | None:
        """The name of the trainer; None where the record has none."""
        return self.trainer.get("name")

    def raises_a_limit_of(self, before: "CaseRecord") -> bool:
        """Return whether a time limit is higher than in an earlier record of the case.

        Older records do not name the limit of a start: the usual one is meant. An unknown `max_seconds` is not raised.
        """
        usual_s = ProbeSpec().max_start_seconds
        raises_start = (self.max_start_seconds or usual_s) > (before.max_start_seconds or usual_s)
        return raises_start or (self.max_seconds or 0.0) > (before.max_seconds or math.inf)


def encode(case: CaseRecord) -> dict[str, Any]:
    """Return the case as values of JSON: `files` lists the names of its files, and each name is a key with the path."""
    record = asdict(case)
    if case.recording is None:
        del record["recording"]
    return schema.storable({**record, "files": list(case.files), **case.files})


def decode(attribute: object) -> CaseRecord | None:
    """Return the case that `encode` gave; None where the attribute is missing or not such a record."""
    if not isinstance(attribute, dict):
        return None
    names = attribute.get("files", FILES)  # older versions stored no list of the names
    if not isinstance(names, list | tuple):
        return None
    files = {str(name): attribute.get(str(name)) or "" for name in names}
    return schema.record_of(CaseRecord, {**attribute, "files": files})


def known_case(name: str, record: CaseRecord | None) -> Case:
    """Return the case that a record describes; without one, what the case's name says of it."""
    if record is None or record.robot is None:
        return Case(name=name)
    return Case(name=name, method=record.method, robot=record.robot)


Number = Annotated[float, Field(ge=-MOST, le=MOST)]
"""As large as the numbers that a probe reads; of larger numbers, no mean could be computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run of a race. Times count from the end of the run's first iteration."""

    config: Config
    seed: int
    seconds: Number
    """How long the run was to train."""
    start_up_s: float | None = None
    trained_s: Number = 0.0
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
        if self.failure is not None:
            return self.failure
        if self.trained_s >= self.seconds:
            return None
        return (
            f"the trainer ended by itself after {self.trained_s:.3g} of {self.seconds:.3g} s of training; raise the "
            "command's own limit of steps, or give fewer --train-hours"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run of a race that a process makes now. It stands in the run's place until the run has ended."""

    config: Config
    seed: int
    lease: Mapping[str, Any]
    """The process, as `tuner.store.leases.Lease.write` gives it."""


def scored_by(runs: Iterable[RunRecord], source: str | None) -> list[RunRecord]:
    """Return the runs whose scores can be compared: those read from `source`, and those whose source is unknown.

    `source`: where the trainer finds the score now, as it names it, such as a row of its output.
    """
    return [run for run in runs if run.score_source in (None, source)]


def newest_scored(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs whose scores can be compared with the newest score, because they were read from its source."""
    sources = (run.score_source for run in reversed(runs) if run.score_source is not None)
    return scored_by(runs, next(sources, None))


def read_claim(attribute: object) -> Claim | None:
    """Return the claim of a run that goes on, stored as `{"claim": …}`; None for an attribute of another form."""
    return schema.record_of(Claim, attribute.get("claim")) if isinstance(attribute, dict) else None


def run_number(name: str) -> int | None:
    """Return the number of the run that the study attribute of this name holds; None for other attributes."""
    number = name.removeprefix(schema.RACE)
    return int(number) if number != name and number.isdecimal() else None


@dataclass(frozen=True, slots=True)
class StudyAttributes:
    """The facts about one case's study, read from its attributes; a fact of another form than expected is unknown."""

    _attributes: Mapping[str, Any]
    """Name → value of JSON."""

    @property
    def case(self) -> CaseRecord | None:
        """The record of the case; None where there is none."""
        return decode(self._attributes.get(schema.CASE))

    @property
    def identity(self) -> dict[str, Any] | None:
        """The settings that must not change; None before the study has any, empty where they are unreadable."""
        attribute = self._attributes.get(schema.IDENTITY)
        if attribute is None:
            return None
        return attribute if isinstance(attribute, dict) else {}

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        return self._read(schema.RUNGS, tuple[PositiveInt, ...]) or None

    @property
    def trials_before_repair(self) -> int:
        """The number of trials from before the set-up was repaired; 0 where it never was."""
        return self._read(schema.REPAIRED, int) or 0

    @property
    def trials_before_longer(self) -> int:
        """The number of trials from before the time limit of a probe was raised; 0 where it never was."""
        return self._read(schema.LONGER, int) or 0

    @property
    def ended(self) -> str | None:
        """Why nothing was left that is worth a probe; None while the case goes on."""
        return self._read(schema.ENDED, str) or None

    @property
    def stopped(self) -> str | None:
        """How the search stopped before it had ended, and how it goes on; None where no process has stored it."""
        return self._read(schema.STOPPED, str) or None

    @property
    def race(self) -> tuple[RunRecord, ...]:
        """The runs of the case's race, in their order."""
        numbered = sorted((number, name) for name in self._attributes if (number := run_number(name)) is not None)
        runs = (schema.record_of(RunRecord, self._attributes[name]) for _, name in numbered)
        return tuple(run for run in runs if run)  # a claim in the place of a run is no record

    def _read(self, name: str, form: type[schema.Record]) -> schema.Record | None:
        """Return what an attribute holds; None where it is missing or has another form."""
        return schema.record_of(form, self._attributes.get(name))


FACTS = {
    "gpus": "cards",
    "devices": "devices",
    "driver": "driver",
    "cuda": "newest CUDA of the driver",
    "torch": "torch",
    "cpu": "processor",
    "cores": "cores",
    "system": "kernel",
    "trainer": "the trainer's commit",
    "script": "script",
}
"""The facts of a probe that may change its speed → what a person calls them."""


FOLDER = "folder"
"""The fact that tells in which folder a trainer runs."""


def is_of_other_script(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether a study was measured with another script in another folder, such as a colleague's.

    `before`: the facts of the study's newest measurement. `now`: those of this machine and script.
    """
    names = (FOLDER, "script")
    return all(name in before and name in now and before[name] != now[name] for name in names)


def changed_facts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return each fact that is known `before` and `now` and has changed, such as `driver 550.54 → 570.86`."""
    both = (name for name in FACTS if name in before and name in now)
    return tuple(f"{FACTS[name]} {before[name]} → {now[name]}" for name in both if before[name] != now[name])
