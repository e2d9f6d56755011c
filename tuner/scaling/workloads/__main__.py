"""The command line of the workloads: `python -m tuner.scaling.workloads --help`."""

import argparse

from tuner.scaling.workloads.catalogue import CATALOGUE, WorkloadRun
from tuner.trainers.reference.launch_settings import RankTeam, device_name, read_whole


def settings_from(argv: list[str] | None = None) -> tuple[RankTeam, WorkloadRun | None]:
    """Read a command line; without settings it asks for a session. Exits with status 2 for one that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m tuner.scaling.workloads")
    parser.add_argument("--devices", type=device_name, nargs="+", default=["cpu"], help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=read_whole, required=True, help="where the ranks meet")
    parser.add_argument("--workload", choices=CATALOGUE, help="without it, the tuner requests workloads in a session")
    parser.add_argument("--size", type=read_whole)
    parser.add_argument("--apart", action="store_true", help="the ranks wait for each other, but exchange nothing")
    parser.add_argument("--iterations", type=read_whole, default=10)
    given = parser.parse_args(argv)
    if given.workload and not given.size:
        parser.error(f"--workload {given.workload} needs --size")
    team = RankTeam(devices=tuple(given.devices), master_port=given.master_port)
    if not given.workload:
        return team, None
    return team, WorkloadRun(
        workload=given.workload, size=given.size, exchange=not given.apart, iterations=given.iterations
    )


if __name__ == "__main__":
    given = settings_from()  # before torch is loaded, which takes seconds: a wrong argument is named at once

    from tuner.scaling.workloads.programs import begin

    begin(*given)
