"""The fields of a stored probe record, as SQL reads them without reading the whole record."""

from typing import Any

from sqlalchemy import ColumnElement

from tuner.kept.probe import DEVICES
from tuner.study.space import LADDER


class ProbeColumns:
    """The fields of the record in a JSON column; NULL where the record has no such field."""

    def __init__(self, document: ColumnElement[Any]) -> None:
        self.status: ColumnElement[Any] = document["status"].as_string()
        self.digest: ColumnElement[Any] = document["digest"].as_string()
        self.ineligible: ColumnElement[Any] = document["ineligible"].as_string()
        self.measured_on: ColumnElement[Any] = document["host"][DEVICES].as_string()
        self.warm: ColumnElement[Any] = document["warm"].as_boolean()
        self.total_s: ColumnElement[Any] = document["total_s"].as_float()
        self.samples_per_s: ColumnElement[Any] = document["samples_per_s"].as_float()
        self.config: ColumnElement[Any] = document["config"]
        """The config as a dict."""
        self.rung: ColumnElement[Any] = document["config"][LADDER].as_integer()
        """The config's `num_envs`."""
