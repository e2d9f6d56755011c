"""The reference trainer's command line: `python -m tuner.trainers.reference --help`."""

import argparse
import re
from pathlib import Path

from tuner.trainers.reference.agent import CASES, AgentSettings, default_hidden_units
from tuner.trainers.reference.run import RunSettings, run

PREFETCH_FACTOR = 2


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.trainers.reference", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--devices", type=_device, nargs="+", default=["cpu"], help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=_above_0, required=True, help="where the ranks meet")
    parser.add_argument("--num-envs", type=_above_0, default=1024, help="environments per device")
    parser.add_argument("--hidden-layers", type=_above_0, default=2)
    parser.add_argument("--hidden-units", type=_above_0, help="per hidden layer; 1024 on GPUs, 64 on CPUs")
    parser.add_argument("--update-epochs", type=_above_0, default=5)
    parser.add_argument("--batch-size", type=_above_0, default=4, help="minibatch, in multiples of --num-envs")
    parser.add_argument("--num-workers", type=_at_least_0, default=0, help="processes preparing clips, per device")
    parser.add_argument("--prefetch-factor", type=_above_0, help=f"batches ahead per worker; {PREFETCH_FACTOR}")
    parser.add_argument("--iterations", type=_above_0, default=10)
    parser.add_argument("--out-dir", type=Path, required=True, help="takes model.pt and log.txt")
    parser.add_argument("--seed", type=_at_least_0, default=0)
    return parser


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither cpu nor cuda:N")
    return text


def _above_0(text: str) -> int:
    return _whole(text, least=1)


def _at_least_0(text: str) -> int:
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def settings_from(argv: list[str] | None = None) -> RunSettings:
    """Read a command line. Exits with status 2 and one message when it cannot be used."""
    parser = _arguments()
    given = parser.parse_args(argv)
    gpus = [device for device in given.devices if device != "cpu"]
    if gpus and len(set(gpus)) < len(given.devices):
        parser.error(f"--devices {' '.join(given.devices)}: give distinct GPUs, or cpu once per rank")
    if given.prefetch_factor is not None and given.num_workers == 0:
        parser.error(f"--prefetch-factor {given.prefetch_factor} needs --num-workers of at least 1")
    return RunSettings(
        method=CASES[given.case],
        agent=AgentSettings(
            hidden_layers=given.hidden_layers,
            hidden_units=given.hidden_units or default_hidden_units(given.devices[0]),
            update_epochs=given.update_epochs,
            batch_size=given.batch_size,
        ),
        devices=tuple(given.devices),
        master_port=given.master_port,
        num_envs=given.num_envs,
        num_workers=given.num_workers,
        prefetch_factor=(given.prefetch_factor or PREFETCH_FACTOR) if given.num_workers else None,
        iterations=given.iterations,
        out_dir=given.out_dir,
        seed=given.seed,
    )


if __name__ == "__main__":
    run(settings_from())
