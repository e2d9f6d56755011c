"""The settings of ranks and runs, and the command line that sets them; without torch, because plans need them, too."""

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, StrictInt, ValidationError

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.study import Strict, Value

Method = Literal["add", "amp", "deepmimic"]

CASES: dict[str, Method] = {"add_pi_plus": "add", "amp_pi_plus": "amp", "deepmimic_pi_plus_ppo": "deepmimic"}
"""Case → its method; the names are MimicKit's, so that the same glob selects the cases of both trainers."""

STEPS_PER_ITERATION = 32
"""The control steps of each environment in one iteration."""


Count = Annotated[StrictInt, Field(ge=1)]


class RunConfig(Strict):
    """The parameters of a config that a run of a team takes. The texts below them are the help of the command line."""

    agent_variant: Literal["default", "hiutil"] = "default"
    """default, or hiutil: a larger network and more updates"""
    update_epochs: Count | None = None
    """how often an iteration's samples are learnt from; default: 5"""
    batch_size: Count | None = None
    """minibatch, in multiples of --num-envs; default: 4"""
    num_workers: Annotated[StrictInt, Field(ge=0)] = 0
    """processes preparing clips, per device; default: 0"""
    prefetch_factor: Count | None = None
    """batches ahead per worker; default: 2"""

    @property
    def ahead(self) -> int | None:
        """The batches that each worker prepares ahead; None without workers."""
        return (self.prefetch_factor or 2) if self.num_workers else None

    @property
    def hidden_layers(self) -> int:
        """The hidden layers of each network."""
        return 3 if self.agent_variant == "hiutil" else 2

    @property
    def epochs(self) -> int:
        """The epochs of an update: at least 20 with `hiutil`."""
        epochs = self.update_epochs or 5
        return max(20, epochs) if self.agent_variant == "hiutil" else epochs

    def samples_of_minibatch(self, num_envs: int) -> int:
        """Return the samples of a minibatch on one rank; with `hiutil`, at most two of each environment."""
        most = 2 if self.agent_variant == "hiutil" else math.inf
        return num_envs * int(min(self.batch_size or 4, most))


def run_config(config: Mapping[str, Value]) -> RunConfig:
    """Return the parameters of a run that a config names.

    Raises TrainerError for a value that the trainer cannot use, and ConfigRefusedError for values that contradict each
    other.
    """
    try:
        run = RunConfig.model_validate({name: config[name] for name in RunConfig.model_fields if name in config})
    except ValidationError as error:
        wrong = [f"{refusal['loc'][0]} {refusal['input']!r}: {refusal['msg']}" for refusal in error.errors()]
        raise TrainerError("; ".join(wrong)) from error
    if run.prefetch_factor and not run.num_workers:
        raise ConfigRefusedError(f"prefetch_factor {run.prefetch_factor} needs num_workers of at least 1")
    return run


def option(parameter: str) -> str:
    """Return the option of the command line for a parameter: `--update-epochs` for `update_epochs`."""
    return f"--{parameter.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTeam:
    """The processes that work together, one rank per device."""

    devices: tuple[str, ...]
    """The device of each rank of this node, such as `cuda:0` or `cpu`."""
    master_port: int
    nodes: int = 1
    """The number of nodes, each with as many ranks."""
    node_rank: int = 0
    """The number of this node."""
    head: str = "127.0.0.1"
    """The host of the first node, where the ranks meet."""

    @property
    def ranks(self) -> int:
        """The ranks of all nodes."""
        return self.nodes * len(self.devices)


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamSettings(RankTeam):
    """The settings that all runs of a started trainer share."""

    method: Method
    num_envs: int
    """Environments per device."""
    env_mib: int = 0
    """The memory that each environment holds besides its samples, as a simulator's contacts and meshes do, in MiB."""
    seed: int

    @property
    def hidden_units(self) -> int:
        """The width of hidden layers: on a GPU that of MimicKit's agents; on a CPU less, so that a probe is short."""
        return 1024 if self.devices[0].startswith("cuda") else 64


def team_parser(module: str) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all runs of a started trainer share, for `python -m module`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--devices", type=device_name, nargs="+", default=["cpu"], help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=read_whole, required=True, help="where the ranks meet")
    parser.add_argument("--nodes", type=read_whole, default=1, help="machines with as many devices each")
    parser.add_argument("--node-rank", type=partial(read_whole, least=0), default=0, help="the number of this machine")
    parser.add_argument("--head", default="127.0.0.1", help="the host of the first machine")
    parser.add_argument("--num-envs", type=read_whole, default=1024, help="environments per device")
    parser.add_argument("--env-mib", type=partial(read_whole, least=0), default=0, help="memory per environment")
    parser.add_argument("--seed", type=partial(read_whole, least=0), default=0)
    return parser


def team_settings(parser: argparse.ArgumentParser, given: argparse.Namespace) -> TeamSettings:
    """Return the settings in the arguments `given`, which `parser` has read.

    Exits with status 2 and one message where the devices cannot be used together.
    """
    gpus = [device for device in given.devices if device != "cpu"]
    if gpus and len(set(gpus)) < len(given.devices):  # a GPU twice, or beside a CPU
        parser.error(f"--devices {' '.join(given.devices)}: give distinct GPUs, or cpu once per rank")
    as_given = {field.name: vars(given)[field.name] for field in fields(TeamSettings) if field.name in given}
    return TeamSettings(**{**as_given, "method": CASES[given.case], "devices": tuple(given.devices)})


def read_whole(text: str, *, least: int = 1) -> int:
    """Return an argument that is a whole number of at least `least`; argparse shows the error for any other."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def device_name(text: str) -> str:
    """Return the name of a device as torch writes it; argparse shows the error for any other text."""
    if not re.fullmatch(r"cpu|cuda:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither cpu nor cuda:N")
    return text
