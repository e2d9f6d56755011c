"""A session: processes that start once and then serve the runs that the tuner requests.

`python -m tuner.trainers.reference.serve --help` shows the arguments. `docs/sessions.md` describes the messages.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tuner.trainers.reference import launch_settings as own
from tuner.trainers.reference.methods import Networks
from tuner.trainers.reference.team_ranks import TeamRank, serve
from tuner.trainers.reference.training import fresh_clips, iterations, show


def train(width: int, rank: TeamRank[own.TeamSettings], request: dict[str, Any], stopped: Callable[[], bool]) -> None:
    """Make a run whose hidden layers are `width` wide."""
    settings = own.run_settings(request["config"], hidden_units=width, iterations=request["iterations"])
    with fresh_clips(rank, settings) as clips:
        networks = Networks(rank.team.method, settings.agent).to(rank.device)
        for line in iterations(rank, networks, clips, settings):
            if rank.leads:
                show(line)
            if stopped():
                break


if __name__ == "__main__":
    parser = own.team_parser("tuner.trainers.reference.serve")
    given = parser.parse_args()
    serve(own.team_settings(parser, given), partial(train, own.hidden_units(given)))
