"""A session: processes that start once and then serve the runs that the tuner requests.

`python -m tuner.trainers.reference.serve --help` shows the arguments. `docs/sessions.md` describes the messages.
"""

import gc
from collections.abc import Callable

import torch

from tuner.trainers.reference import launch_settings as own
from tuner.trainers.reference.methods import Networks
from tuner.trainers.reference.team_ranks import Orders, TeamRank, prepare, process_group, start
from tuner.trainers.reference.training import fresh_clips, iterations, show


def serve(team: own.TeamSettings, width: int) -> None:
    """Serve runs whose hidden layers are `width` wide, until the tuner requests no more runs.

    Raises the error of the first rank that fails, which also ends the other ranks.
    """
    start(_serve, team, width)


def _serve(number: int, team: own.TeamSettings, width: int) -> None:
    rank = prepare(number, team)
    with process_group(rank):
        orders = Orders(leads=rank.leads)
        for request in orders.runs():
            settings = own.run_settings(request["config"], hidden_units=width, iterations=request["iterations"])
            _train(rank, settings, orders.stopped)
            _free(rank.device)


def _train(rank: TeamRank[own.TeamSettings], settings: own.TrainingSettings, stopped: Callable[[], bool]) -> None:
    with fresh_clips(rank, settings) as clips:
        networks = Networks(rank.team.method, settings.agent).to(rank.device)
        for line in iterations(rank, networks, clips, settings):
            if rank.leads:
                show(line)
            if stopped():
                break


def _free(device: torch.device) -> None:
    """Free all memory and compiled code of the run that has ended, and count allocator retries from 0 again."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats(device)


if __name__ == "__main__":
    parser = own.team_parser("tuner.trainers.reference.serve")
    given = parser.parse_args()
    serve(own.team_settings(parser, given), own.hidden_units(given))
