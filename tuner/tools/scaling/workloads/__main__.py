"""Serves runs of the workloads: `python -m tuner.tools.scaling.workloads --help` shows the arguments."""

import argparse

from tuner.trainers.reference.launch_settings import RankTeam, device_name, read_whole


def team_from(argv: list[str] | None = None) -> RankTeam:
    """Read a command line. Exits with status 2 for one that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m tuner.tools.scaling.workloads")
    parser.add_argument("--devices", type=device_name, nargs="+", required=True, help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=read_whole, required=True, help="where the ranks meet")
    given = parser.parse_args(argv)
    return RankTeam(devices=tuple(given.devices), master_port=given.master_port)


if __name__ == "__main__":
    team = team_from()  # before torch is loaded, which takes seconds: a wrong argument is named at once

    from tuner.tools.scaling.workloads.programs import run
    from tuner.trainers.reference.team_ranks import serve

    serve(team, run)
