"""A session: processes that start once and then serve the runs that the tuner requests.

`python -m tuner.trainers.reference.serve --help` shows the arguments. `docs/sessions.md` describes the messages.
"""

from collections.abc import Callable
from typing import Any

from tuner.trainers.reference.launch_settings import TeamSettings, run_config, team_parser, team_settings
from tuner.trainers.reference.learning import fresh_clips, iterations, networks_of, show
from tuner.trainers.reference.team_ranks import TeamRank, serve


def train(rank: TeamRank[TeamSettings], request: dict[str, Any], stopped: Callable[[], bool]) -> None:
    """Make the run that a request asks for; it ends early where `stopped` returns True."""
    config = run_config(request["config"])
    with fresh_clips(rank, config) as clips:
        for line in iterations(rank, networks_of(rank, config), clips, config, request["iterations"]):
            if rank.leads:
                show(line)
            if stopped():
                break


if __name__ == "__main__":
    parser = team_parser("tuner.trainers.reference.serve")
    serve(team_settings(parser, parser.parse_args()), train)
