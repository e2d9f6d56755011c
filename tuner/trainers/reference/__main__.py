"""The reference trainer's command line: `python -m tuner.trainers.reference --help`."""

from pathlib import Path

from tuner.trainers.reference.launch_settings import (
    PREFETCH_FACTOR,
    AgentSettings,
    TeamSettings,
    TrainingSettings,
    above_0,
    add_kernels,
    at_least_0,
    given_kernels,
    hidden_units,
    team_parser,
    team_settings,
)


def settings_from(argv: list[str] | None = None) -> tuple[TeamSettings, TrainingSettings, Path]:
    """Read a command line; the path is the out dir's. Exits with status 2 and one message when it cannot be used."""
    parser = team_parser("tuner.trainers.reference")
    parser.add_argument("--hidden-layers", type=above_0, default=2)
    parser.add_argument("--update-epochs", type=above_0, default=5)
    parser.add_argument("--batch-size", type=above_0, default=4, help="minibatch, in multiples of --num-envs")
    parser.add_argument("--minibatch", type=above_0, help="minibatch in samples per device, in place of --batch-size")
    parser.add_argument("--num-workers", type=at_least_0, default=0, help="processes preparing clips, per device")
    parser.add_argument("--prefetch-factor", type=above_0, help=f"batches ahead per worker; {PREFETCH_FACTOR}")
    add_kernels(parser)
    parser.add_argument("--iterations", type=above_0, default=10)
    parser.add_argument("--out-dir", type=Path, required=True, help="takes model.pt and log.txt")
    given = parser.parse_args(argv)
    if given.prefetch_factor is not None and given.num_workers == 0:
        parser.error(f"--prefetch-factor {given.prefetch_factor} needs --num-workers of at least 1")
    settings = TrainingSettings(
        agent=AgentSettings(
            hidden_layers=given.hidden_layers,
            hidden_units=hidden_units(given),
            update_epochs=given.update_epochs,
            batch_size=given.batch_size,
            minibatch=given.minibatch,
        ),
        kernels=given_kernels(parser, given),
        num_workers=given.num_workers,
        prefetch_factor=(given.prefetch_factor or PREFETCH_FACTOR) if given.num_workers else None,
        iterations=given.iterations,
    )
    return team_settings(parser, given), settings, given.out_dir


if __name__ == "__main__":
    given = settings_from()  # before torch is loaded, which takes seconds: a wrong argument is named at once

    from tuner.trainers.reference.training import run

    run(*given)
