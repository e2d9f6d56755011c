"""The arguments that the command line of a run and that of a session share."""

import argparse
import re

from tuner.errors import ConfigRefusedError
from tuner.trainers.reference.agent import CASES, default_hidden_units
from tuner.trainers.reference.kernels import KERNELS, PRECISIONS, ROLLOUT_DEVICES, USUAL, Kernels
from tuner.trainers.reference.settings import TeamSettings


def team_parser(module: str) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all runs of a started trainer share, for `python -m module`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--devices", type=device_name, nargs="+", default=["cpu"], help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=above_0, required=True, help="where the ranks meet")
    parser.add_argument("--num-envs", type=above_0, default=1024, help="environments per device")
    parser.add_argument("--hidden-units", type=above_0, help="per hidden layer; 1024 on GPUs, 64 on CPUs")
    parser.add_argument("--seed", type=at_least_0, default=0)
    return parser


def team_settings(parser: argparse.ArgumentParser, given: argparse.Namespace) -> TeamSettings:
    """Return the settings that `parser` has read.

    Exits with status 2 and one message when the devices cannot be used together.
    """
    gpus = [device for device in given.devices if device != "cpu"]
    if gpus and len(set(gpus)) < len(given.devices):
        parser.error(f"--devices {' '.join(given.devices)}: give distinct GPUs, or cpu once per rank")
    return TeamSettings(
        method=CASES[given.case],
        devices=tuple(given.devices),
        master_port=given.master_port,
        num_envs=given.num_envs,
        seed=given.seed,
    )


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how a run computes."""
    parser.add_argument("--precision", choices=PRECISIONS, default=USUAL, help="number format of the layers")
    parser.add_argument("--tf32", action="store_true", help="round the inputs of fp32 matrix products to TF32")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN time its algorithms")
    parser.add_argument("--compile", action="store_true", help="compile the policy's loss with torch.compile")
    parser.add_argument("--cuda-graphs", action="store_true", help="replay the rollout as one CUDA graph")
    parser.add_argument("--rollout-device", choices=ROLLOUT_DEVICES, help="where the rollout runs; default: --devices")


def given_kernels(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Kernels:
    """Return how the run computes. Exits with status 2 and one message for what cannot work on the devices."""
    asked = Kernels(**{name: getattr(given, name) for name in KERNELS})
    try:
        asked.check()
        asked.check_on(given.devices[0])
    except ConfigRefusedError as refusal:
        parser.error(str(refusal))
    return asked


def hidden_units(given: argparse.Namespace) -> int:
    """Return the width of hidden layers."""
    return given.hidden_units or default_hidden_units(given.devices[0])


def above_0(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole(text, least=1)


def at_least_0(text: str) -> int:
    """Read a whole number of at least 0."""
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def device_name(text: str) -> str:
    """Read the name of a device as torch writes it."""
    if not re.fullmatch(r"cpu|cuda:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither cpu nor cuda:N")
    return text
