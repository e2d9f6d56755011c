"""Overrides: what a study file changes for some of its cases or for one kind of device."""

from typing import Any, Literal

from pydantic import Field

from tuner.study.parameter import Strict


class Match(Strict):
    """Where an override applies: to the cases that a glob matches, to one kind of device, or both."""

    cases: tuple[str, ...] = Field(default=("*",), description="globs over the names of cases")
    device: Literal["cpu", "gpu"] | None = Field(default=None, description="one kind of device; empty: both kinds")


class Override(Strict):
    """Changes for a part of the study. A parameter in `space` replaces the whole parameter of the same name."""

    match: Match = Field(description="where the changes apply")
    space: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="parameters by name; each replaces the whole parameter"
    )
    probe: dict[str, Any] = Field(default_factory=dict, description="some keys of `probe`")
    search: dict[str, Any] = Field(default_factory=dict, description="some keys of `search`")
