"""The header of a table: what all its rows have in common."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_serializer

from tuner import __version__
from tuner.export.case import CaseView
from tuner.probe.metrics import METRICS
from tuner.probe.plan import Device
from tuner.study.parameter import ParameterSpec, Strict
from tuner.study.spec import ProbeSpec


class Circumstances(Strict):
    """How a case is recorded. The case's study keeps this from its start, so that a table can be made at any time."""

    space: dict[str, ParameterSpec]
    """The space as a study file writes it."""
    machine: dict[str, str]
    """The cards, driver, CPU and memory, without the name of the machine."""
    devices: tuple[Device, ...] = Field(min_length=1)
    """The devices, without the identities of single cards."""
    limits: ProbeSpec
    """The limits of each probe."""
    commit: str | None = None
    """The commit of the trainer's checkout, with `-dirty` if files differ from the commit."""

    @field_serializer("space")
    def _without_defaults(self, space: Mapping[str, ParameterSpec]) -> dict[str, Any]:
        return {name: spec.model_dump(mode="json", exclude_defaults=True) for name, spec in space.items()}


class Header(Circumstances):
    """The content of a table's JSON file."""

    schema_version: Literal["1.0.0"] = "1.0.0"
    study: str
    case: str
    files: dict[str, str]
    """The trainer's own files: name of the option → path."""
    objective: str
    unit: str
    """The unit of the objective."""
    source: str
    """What measured utilisation."""
    trainer: dict[str, str]
    """What makes the trainer's results comparable."""
    tuner: str = __version__
    date: str
    """When the last row was measured, in UTC (ISO 8601)."""
    rows: int


def header(case: CaseView, study: str, *, rows: int, date: str) -> Header:
    """Return the header for the table of a recorded case."""
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
