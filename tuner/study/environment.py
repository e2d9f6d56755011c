"""The environment variables that a study sets for its trainer."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tuner.study.forms import VARIABLE
from tuner.study.parameter import Strict

Variables = dict[Annotated[str, StringConstraints(pattern=VARIABLE)], str]
"""Environment variables, with names that every system accepts."""


class EnvironmentSpec(Strict):
    """The environment variables of the trainer's processes."""

    nccl_p2p: Literal["auto", "on", "off"] = Field(
        default="auto", description="`auto` sets `NCCL_P2P_DISABLE=1` only if two cards have no P2P"
    )
    variables: Variables = Field(default_factory=dict, description="variables that are set for the trainer")
