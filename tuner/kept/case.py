"""The record of a case: a typed value, and its form in the database."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.kept.identity import masked
from tuner.kept.storable import read_json, storable
from tuner.study.cases import FILES, Case
from tuner.study.space import LADDER, Config


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
    """How the case is recorded, if it is: the JSON of `tuner.export.header.Circumstances`."""

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


def decode_json(document: object) -> KeptCase | None:
    """Return the case in a JSON text; None where the text is missing or not such a record."""
    return decode(read_json(document))


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
