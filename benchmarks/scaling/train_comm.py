"""Trains wide layers with DDP on few samples, so that a step is mostly its all-reduce."""

import argparse
import itertools
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WARM_UP_STEPS = 30


def main() -> None:
    """Train; after `--steps` steps, rank 0 prints the samples per second of all ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--bucket_cap_mb", type=int, default=25)
    parser.add_argument("--steps", type=int, default=10_000_000, help="to train, after the warm-up")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu", int(os.environ["LOCAL_RANK"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    layers = [part for _ in range(args.layers) for part in (nn.Linear(args.width, args.width), nn.GELU())]
    network = nn.Sequential(*layers).to(device)
    model = DistributedDataParallel(network, bucket_cap_mb=args.bucket_cap_mb, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(512 * args.batch_size, args.width))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, pin_memory=device.type == "cuda")
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    loss, began_s = torch.zeros(()), 0.0
    for step, (inputs,) in enumerate(itertools.islice(batches, WARM_UP_STEPS + args.steps)):
        if step == WARM_UP_STEPS:
            loss.item()  # it waits for the device
            began_s = time.perf_counter()
        samples = inputs.to(device, non_blocking=True)
        loss = (model(samples) - samples).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    last_loss = loss.item()
    if dist.get_rank() == 0:
        speed = args.steps * args.batch_size * dist.get_world_size() / (time.perf_counter() - began_s)
        print(f"samples_per_s {speed:.2f} loss {last_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
