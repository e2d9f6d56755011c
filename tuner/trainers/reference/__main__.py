"""The reference trainer's command line: `python -m tuner.trainers.reference --help`."""

import argparse
from pathlib import Path

from tuner.errors import TrainerError
from tuner.trainers.reference import launch_settings as launch


def settings_from(argv: list[str] | None = None) -> tuple[launch.TeamSettings, launch.RunConfig, int, Path]:
    """Return the settings of the ranks, the config, the number of iterations and the out dir in a command line.

    Exits with status 2 for arguments that cannot be used.
    """
    parser = launch.team_parser("tuner.trainers.reference")
    for name, schema in launch.RunConfig.model_json_schema()["properties"].items():
        parser.add_argument(launch.option(name), type=_value, default=argparse.SUPPRESS, help=schema["description"])
    parser.add_argument("--iterations", type=launch.read_whole, default=10_000, help="default: %(default)s")
    parser.add_argument("--out-dir", type=Path, required=True, help="takes model.pt and log.txt")
    given = parser.parse_args(argv)
    config = {name: value for name, value in vars(given).items() if name in launch.RunConfig.model_fields}
    try:
        parameters = launch.run_config(config)
    except TrainerError as refusal:
        parser.error(str(refusal))
    return launch.team_settings(parser, given), parameters, given.iterations, given.out_dir


def _value(text: str) -> int | str:
    """Return a whole number as such, and anything else as text."""
    return int(text) if text.isdecimal() else text


if __name__ == "__main__":
    given = settings_from()  # before torch is loaded, which takes seconds: a wrong argument is named at once

    from tuner.trainers.reference.learning import run

    run(*given)
