"""The runs of a campaign: all that the tables need, grouped by the programs that serve them."""

from itertools import groupby
from pathlib import Path

import pytest
from tests_loop import bench, spec
from tests_scaling import scaled

from tuner.devices.found import Link
from tuner.tools.scaling.campaign import CardTeam, Run, counts, nccl_limits, routes, scaling_runs, variables_of_trainers

FUSION = scaled("fusion", 64, 256)
PPO = scaled("ppo", 1024)
LINKS = scaled("allreduce", 4096, only_links=True)
ALL = (PPO, FUSION, LINKS)


def link(*, p2p: bool | None = True, nvlink: bool | None = True) -> Link:
    return Link(first=0, second=1, p2p=p2p, nvlink=nvlink)


def of(runs: list[Run], subject: str, mode: str) -> list[Run]:
    return [run for run in runs if (run.subject.name, run.mode) == (subject, mode)]


def test_one_gpu_is_always_the_baseline() -> None:
    for asked, visible, expected in [
        (None, 1, (1,)),
        (None, 6, (1, 2, 4)),
        ([8], 8, (1, 8)),
        ([4, 2], 8, (1, 2, 4)),
        (None, 8, (1, 2, 4, 8)),
    ]:
        assert counts(asked, visible) == expected


def test_routes_follow_the_topology() -> None:
    for pairs, on_gpu, expected in [
        ([link()], True, ("nvlink", "host")),
        ([link(nvlink=False)], True, ("p2p", "host")),
        ([link(), link(p2p=False)], True, ("host",)),
        ([link(nvlink=None)], True, ("p2p", "host")),
        ([], False, ("gloo",)),
    ]:
        assert routes(pairs, on_gpu=on_gpu) == expected


@pytest.mark.parametrize(
    ("variables", "over_nvlink", "over_pcie"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, ("host",), ("host",)),
        ({"NCCL_P2P_DISABLE": "0"}, ("nvlink", "host"), ("p2p", "host")),
        ({"NCCL_P2P_LEVEL": "LOC"}, ("host",), ("host",)),
        ({"NCCL_P2P_LEVEL": "PIX"}, ("nvlink", "host"), ("nccl", "host")),  # the driver tells no switches
        ({"NCCL_SHM_DISABLE": "1"}, ("nvlink",), ("p2p",)),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, ("nccl",), ("nccl",)),  # over the network
    ],
)
def test_a_route_that_nccl_is_told_not_to_take_is_not_measured(
    variables: dict[str, str], over_nvlink: tuple[str, ...], over_pcie: tuple[str, ...]
) -> None:
    found = [routes([link(nvlink=nvlink)], on_gpu=True, variables=variables) for nvlink in (True, False)]
    assert found == [over_nvlink, over_pcie]
    assert bool(nccl_limits(variables)) is (variables != {"NCCL_P2P_DISABLE": "0"})


def test_a_variable_before_the_command_limits_the_routes_too(tmp_path: Path) -> None:
    options = {"command": "train", "env": {"NCCL_P2P_DISABLE": "1"}}
    study = spec(trainer={"name": "command", "options": options}, space={"lr": {"choices": [1, 2]}})
    variables = variables_of_trainers(bench(tmp_path, study))
    assert routes([link()], on_gpu=True, variables=variables) == ("host",)


def test_a_program_is_started_once_for_all_that_it_serves() -> None:
    runs = list(scaling_runs(ALL, (1, 2), ("nvlink", "host")))
    teams = [teams for teams, _ in groupby(run.teams for run in runs)]
    assert teams == [
        (CardTeam(gpus=(0,)),),
        (CardTeam(gpus=(0,)), CardTeam(gpus=(1,))),
        (CardTeam(gpus=(0, 1), route="nvlink"),),
        (CardTeam(gpus=(0, 1), route="host"),),
    ]


def test_the_largest_batch_is_divided_for_strong_scaling() -> None:
    runs = list(scaling_runs(ALL, (1, 2, 8), ("nvlink",)))
    assert [run.size for run in of(runs, "fusion", "single")] == [32, 64, 128, 256]
    assert [run.size for run in of(runs, "allreduce", "joined")] == [4096, 4096]


def test_each_subject_has_only_the_modes_that_it_can_run() -> None:
    runs = list(scaling_runs(ALL, (1, 2), ("nvlink", "host")))
    assert {run.mode for run in runs if run.subject.name == "allreduce"} == {"joined"}
    assert {run.mode for run in runs if run.subject.name == "ppo"} == {"single", "beside", "joined"}
    assert {run.teams[0].route for run in of(runs, "fusion", "joined")} == {"nvlink", "host"}


def test_a_trainer_without_sizes_is_measured_as_it_is() -> None:
    runs = list(scaling_runs([scaled("mine", None)], (1, 2), ("p2p",)))
    assert {run.size for run in runs} == {None}
