"""A session of several ranks: docs/sessions.md. A copy of `tuner/progress.py` lies beside this file."""

import argparse
import gc
from datetime import timedelta

import torch
from progress import report, requests, stopped
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, data, width, iterations, stop=lambda: False):
    """Train one network, and report each iteration."""
    network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 1))
    network = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters())
    for iteration in range(iterations):
        for batch in data.split(256):
            optimizer.zero_grad()
            network(batch).square().mean().backward()
            optimizer.step()
        report(iteration=iteration, samples=(iteration + 1) * len(data), rank=rank)
        if stop():
            break


def serve(rank, data):
    """Train what is asked for, until nothing more is."""
    control = distributed.new_group(backend="gloo", timeout=timedelta(days=1))

    def from_leader(value):
        """Return rank 0's value on all ranks; all of them call this."""
        box = [value]
        distributed.broadcast_object_list(box, src=0, group=control)
        return box[0]

    asked = requests() if rank == 0 else iter([])
    while request := from_leader(next(asked, None)):
        width = request["config"]["width"]
        train(rank, data, width, request["iterations"], stop=lambda: from_leader(rank == 0 and stopped()))
        gc.collect()  # on a GPU followed by torch.cuda.empty_cache()
        distributed.barrier(control)


def work(rank, given):
    """Serve a session, or train once."""
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{given.port}", rank=rank, world_size=given.ranks
    )
    data = torch.randn(given.num_envs, 64)  # what all runs of a session share
    if given.serve:
        serve(rank, data)
    else:
        train(rank, data, given.width, given.iterations)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--ranks", "--port", "--num-envs", "--width", "--iterations"):
        parser.add_argument(name, type=int)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    multiprocessing.spawn(work, args=(given,), nprocs=given.ranks)
