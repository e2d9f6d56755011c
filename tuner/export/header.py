"""The header of a table: what all its rows have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field, field_serializer

from tuner import __version__
from tuner.export.records import CaseRecord
from tuner.probe.metrics import METRICS
from tuner.probe.plan import Device
from tuner.study.cases import FILES
from tuner.study.parameter import ParameterSpec, Strict
from tuner.study.spec import ProbeSpec


class Header(Strict):
    """What a table's JSON file holds."""

    schema_version: Literal["1.0.0"] = "1.0.0"
    study: str
    case: str
    files: dict[str, str]
    """The trainer's own, as the case names them."""
    objective: str
    unit: str
    """Of the objective."""
    space: dict[str, ParameterSpec]
    """In the words of a study file."""
    machine: dict[str, str]
    """Cards, driver, CPU and memory; nothing that names the machine."""
    devices: tuple[Device, ...] = Field(min_length=1)
    source: str
    """What measured utilisation."""
    trainer: dict[str, str]
    """What makes its results comparable."""
    commit: str | None = None
    """Of the trainer's checkout, `-dirty` where files differ from it."""
    tuner: str = __version__
    limits: ProbeSpec
    """Of each probe."""
    date: str
    """When the last row was measured: UTC, ISO 8601."""
    rows: int

    @field_serializer("space")
    def _without_defaults(self, space: Mapping[str, ParameterSpec]) -> dict[str, Any]:
        return {name: spec.model_dump(mode="json", exclude_defaults=True) for name, spec in space.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What the database does not hold about how a case was recorded; the fields are those of `Header`."""

    space: Mapping[str, ParameterSpec]
    limits: ProbeSpec
    machine: Mapping[str, str]
    devices: Sequence[Device]
    commit: str | None


def header(case: CaseRecord, study: str, circumstances: Circumstances, *, rows: int, date: str) -> Header:
    """Put the header of a case's table together."""
    return Header(
        study=study,
        case=case.name,
        files={name: case.facts.get(name) or "" for name in FILES},
        objective=case.objective,
        unit=next((metric.unit for metric in METRICS if metric.name == case.objective), ""),
        space=dict(circumstances.space),
        machine=dict(circumstances.machine),
        devices=tuple(replace(device, uuid=None) for device in circumstances.devices),
        source=case.facts["source"],
        trainer=case.facts["trainer"],
        commit=circumstances.commit,
        limits=circumstances.limits,
        date=date,
        rows=rows,
    )
