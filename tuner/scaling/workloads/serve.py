"""Starts the ranks of a workload, for one run or for a session that serves runs of any workload."""

from tuner.scaling.workloads.running import run
from tuner.scaling.workloads.settings import RunSettings, run_settings
from tuner.trainers.reference.orders import Orders
from tuner.trainers.reference.settings import Team
from tuner.trainers.reference.team import prepare, process_group, start


def begin(team: Team, settings: RunSettings | None) -> None:
    """Run what `settings` say; without settings, serve runs until the tuner requests no more.

    Raises the error of the first rank that fails, which also ends the other ranks.
    """
    start(_work, team, settings)


def _work(number: int, team: Team, settings: RunSettings | None) -> None:
    rank = prepare(number, team)
    with process_group(rank):
        if settings is not None:
            run(rank, settings)
            return
        orders = Orders(leads=rank.leads)
        for request in orders.runs():
            settings = run_settings(request["workload"], request["config"], iterations=request["iterations"])
            run(rank, settings, orders.stopped)
