"""What the study of a case keeps beside its trials: its identity, the record of the case, and facts fixed for good."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.kept.optuna_tables import BATCH, CASE, ENDED, IDENTITY, MENDED, RUNGS
from tuner.kept.race_run import KeptRun, place
from tuner.kept.race_run import decode as decode_run
from tuner.kept.storable import storable
from tuner.study.batch import BatchFit
from tuner.study.cases import FILES, Case
from tuner.study.parameter import retired_keys
from tuner.study.secrets import masked_trainer
from tuner.study.space import LADDER, Config

RECORDED = "recorded"
"""Key in a replayed trainer's fingerprint: when the table of the case was recorded. Each case has its own table."""
_COMPARED = ("objective", "constraints", "source", "devices")
"""The settings, beside the trainer, that two cases must share so that one can learn from the other."""
_RETIRED = retired_keys("pruner")


def comparable(identity: Mapping[str, Any]) -> list[Any]:
    """Return the part of an identity that two cases must share so that one can learn from the other."""
    trainer = {name: fact for name, fact in _part(identity, "trainer").items() if name != RECORDED}
    return [trainer, *(identity.get(part) for part in _COMPARED)]


def as_of_now(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity of an older version without the settings that nothing reads any more.

    These are the settings of the pruner called `none`, and the pruner's retired keys.
    """
    pruner = _part(identity, "pruner")
    read = {} if pruner.get("name") == "none" else {key: one for key, one in pruner.items() if key not in _RETIRED}
    others = {name: setting for name, setting in identity.items() if name != "pruner"}
    return {**others, **({"pruner": read} if read else {})}


def masked(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity, or the record of a case, without literal keys: older versions stored them."""
    return (
        {**identity, "trainer": masked_trainer(_part(identity, "trainer"))} if "trainer" in identity else {**identity}
    )


def _part(identity: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = identity.get(name)
    return part if isinstance(part, dict) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptCase:
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
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, if it is: the JSON of `tuner.export.recorded_table.Circumstances`."""

    @property
    def trainer_name(self) -> str | None:
        """Return the name of the trainer."""
        return self.trainer.get("name")


_CASE = TypeAdapter(KeptCase)


def kept_case(
    case: Case,
    identity: Mapping[str, Any],
    *,
    ladder: str | None = LADDER,
    defaults: Sequence[Config],
    learning: Iterable[str],
    recording: Mapping[str, Any] | None = None,
) -> KeptCase:
    """Return what is kept of a case whose study has this `identity`. Missing files are empty."""
    return KeptCase(
        case=case.name,
        method=case.method,
        robot=case.robot,
        mode=case.mode,
        files={name: case.options.get(name, "") for name in case.files},
        trainer=identity["trainer"],
        source=identity["source"],
        devices=tuple(identity["devices"]),
        objective=identity["objective"],
        ladder=ladder,
        defaults=tuple(defaults),
        learning=tuple(sorted(learning)),
        recording=recording,
    )


def encode(case: KeptCase) -> dict[str, Any]:
    """Return the case as values of JSON; each of its files has a key of its own."""
    record = asdict(case)
    if case.recording is None:
        del record["recording"]
    return storable({**record, "files": list(case.files), **case.files})


def decode(attribute: object) -> KeptCase | None:
    """Return the case that `encode` gave; None where the attribute is missing or not such a record."""
    if not isinstance(attribute, dict):
        return None
    try:
        return _CASE.validate_python({**masked(attribute), "files": dict(_files(attribute))})
    except (ValidationError, TypeError):
        return None


def known_case(name: str, kept: KeptCase | None) -> Case:
    """Return a case as far as its record says what the case is like; its name says the rest."""
    if kept is None or kept.robot is None:
        return Case(name=name)
    return Case(name=name, method=kept.method, robot=kept.robot)


def _files(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in record.get("files", FILES):
        yield name, record.get(name) or ""


class KeptStudy:
    """The facts about one case's study, read from its attributes; a fact of another form than expected is unknown."""

    __slots__ = ("_attributes",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    @property
    def case(self) -> KeptCase | None:
        """The record of the case."""
        return decode(self._attributes.get(CASE))

    @property
    def identity(self) -> dict[str, Any] | None:
        """The settings that must not change; None before the study has any, empty where they are unreadable."""
        known = self._attributes.get(IDENTITY)
        return masked(known) if isinstance(known, dict) else None if known is None else {}

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        known = self._attributes.get(RUNGS)
        is_readable = isinstance(known, list | tuple) and all(isinstance(rung, int) and rung > 0 for rung in known)
        return tuple(known) if known and is_readable else None

    @property
    def batch(self) -> BatchFit | None:
        """The batch size that is `auto`; None until it has been worked out."""
        known = self._attributes.get(BATCH)
        try:
            return BatchFit.read(known) if isinstance(known, dict) else None
        except (TypeError, ValueError):
            return None

    @property
    def mended(self) -> int:
        """The number of trials from before the set-up was mended; 0 where it never was."""
        known = self._attributes.get(MENDED)
        return known if isinstance(known, int) else 0

    @property
    def ended(self) -> str | None:
        """Why nothing was left that is worth a probe; None while the case goes on."""
        known = self._attributes.get(ENDED)
        return known if isinstance(known, str) and known else None

    @property
    def race(self) -> tuple[KeptRun, ...]:
        """The runs of the case's race, in their order."""
        numbered = sorted((number, name) for name in self._attributes if (number := place(name)) is not None)
        runs = (decode_run(self._attributes[name]) for _, name in numbered)
        return tuple(run for run in runs if run)
