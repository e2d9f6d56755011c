"""The header of a table: what all its rows have in common."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_serializer

from tuner import __version__
from tuner.export.records import CaseRecord
from tuner.probe.metrics import METRICS
from tuner.probe.plan import Device
from tuner.study.parameter import ParameterSpec, Strict
from tuner.study.spec import ProbeSpec


class Circumstances(Strict):
    """How a case is recorded; its study in the database keeps it from the start, so that a table can always be made."""

    space: dict[str, ParameterSpec]
    """In the words of a study file."""
    machine: dict[str, str]
    """Cards, driver, CPU and memory; nothing that names the machine."""
    devices: tuple[Device, ...] = Field(min_length=1)
    """Without what names the very card."""
    limits: ProbeSpec
    """Of each probe."""
    commit: str | None = None
    """Of the trainer's checkout, `-dirty` where files differ from it."""

    @field_serializer("space")
    def _without_defaults(self, space: Mapping[str, ParameterSpec]) -> dict[str, Any]:
        return {name: spec.model_dump(mode="json", exclude_defaults=True) for name, spec in space.items()}


class Header(Circumstances):
    """What a table's JSON file holds."""

    schema_version: Literal["1.0.0"] = "1.0.0"
    study: str
    case: str
    files: dict[str, str]
    """The trainer's own, as the case names them."""
    objective: str
    unit: str
    """Of the objective."""
    source: str
    """What measured utilisation."""
    trainer: dict[str, str]
    """What makes its results comparable."""
    tuner: str = __version__
    date: str
    """When the last row was measured: UTC, ISO 8601."""
    rows: int


def header(case: CaseRecord, study: str, *, rows: int, date: str) -> Header:
    """Put the header of a recorded case's table together."""
    return Header(
        **dict(Circumstances.model_validate(case.kept.recording)),
        study=study,
        case=case.name,
        files=dict(case.kept.files),
        objective=case.objective,
        unit=next((metric.unit for metric in METRICS if metric.name == case.objective), ""),
        source=case.kept.source or "",
        trainer=dict(case.kept.trainer),
        date=date,
        rows=rows,
    )
