"""Divides a machine's devices among workers. Pure."""

import re

from tuner.errors import StudyError


def device_groups(asked: str, available: int, *, workers: int | None, per_trial: int | None) -> list[str]:
    """Return the devices of each worker, in the words of `--devices`: disjoint sets of cards, or CPU ranks.

    `asked` is the study's `devices`: `auto`, `cpu`, `cpu:RANKS` or CUDA indices. `available` is the number of cards
    that `asked` opens; 0 means CPU ranks. With `per_trial` alone, there are as many workers as fit. With `workers`
    alone, each worker gets an equal share of the cards. CPU ranks are not divided, because a rank is no card: every
    worker gets `per_trial` ranks, or the study's number.

    Raises StudyError when there are too few cards.
    """
    if not available:
        ranks = f"cpu:{per_trial}" if per_trial else asked.replace("auto", "cpu")
        return [ranks] * (workers or 1)
    cards = asked.split(",") if re.fullmatch(r"\d+(,\d+)*", asked) else [str(index) for index in range(available)]
    per_trial = per_trial or max(1, available // (workers or 1))
    most = available // per_trial
    if most < (workers or 1):
        raise StudyError(
            f"{workers or 1} worker(s) with {per_trial} GPU(s) per trial need {(workers or 1) * per_trial} GPUs, and "
            f"{available} are there; lower --workers or --gpus-per-trial"
        )
    return [",".join(cards[start : start + per_trial]) for start in range(0, (workers or most) * per_trial, per_trial)]
