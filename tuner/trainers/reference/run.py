"""One training run by processes of its own, leaving `model.pt` and `log.txt`."""

import sys
from pathlib import Path

import torch

from tuner.trainers.reference.methods import Networks
from tuner.trainers.reference.settings import RunSettings, TeamSettings
from tuner.trainers.reference.team import prepare, process_group, start
from tuner.trainers.reference.training import Mark, fresh_clips, iterations


def run(team: TeamSettings, settings: RunSettings, out_dir: Path) -> None:
    """Train to the end and leave both files in `out_dir`. Raises the error of the first rank that fails."""
    out_dir.mkdir(parents=True, exist_ok=True)
    start(_train, team, settings, out_dir)


def _train(number: int, team: TeamSettings, settings: RunSettings, out_dir: Path) -> None:
    rank = prepare(number, team)
    with fresh_clips(rank, settings) as clips, process_group(rank):
        networks = Networks(team.method, settings.agent).to(rank.device)
        for mark in iterations(rank, networks, clips, settings):
            if rank.leads:
                _log(mark, len(team.devices), out_dir / "log.txt")
        if rank.leads:
            torch.save(networks.state_dict(), out_dir / "model.pt")


def _log(mark: Mark, ranks: int, path: Path) -> None:
    line = mark.line(ranks)
    with path.open("a" if mark.iteration else "w", encoding="utf-8") as log:
        log.write(line)
    sys.stdout.write(line)
    sys.stdout.flush()
