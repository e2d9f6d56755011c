"""Plain PyTorch under torchrun: a small image classifier, trained with DistributedDataParallel on data made here.

torchrun --nproc-per-node 2 examples/torchrun_ddp.py --batch-size 64 --num-workers 2
"""

import argparse
import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 10


class Shapes(Dataset):
    """Images with one bright stripe, whose place is the class. Each image is drawn when it is asked for."""

    def __init__(self, size: int, length: int) -> None:
        self.size, self.length = size, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Draw the image of this index."""
        label = index % CLASSES
        image = torch.randn(3, self.size, self.size, generator=torch.Generator().manual_seed(index))
        begin = label * self.size // CLASSES
        image[:, begin : begin + self.size // CLASSES] += 2
        return image, label


def network(width: int) -> nn.Module:
    """Return a convolutional classifier."""
    layers: list[nn.Module] = []
    channels = 3
    for factor in (1, 2, 4):
        layers += [nn.Conv2d(channels, factor * width, 3, stride=2, padding=1), nn.BatchNorm2d(factor * width)]
        layers.append(nn.ReLU())
        channels = factor * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def main() -> None:
    """Train, and print a line for each step from rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--num-workers", type=int, default=0, help="processes per rank that draw images")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    data = Shapes(args.image_size, ranks * args.batch_size * args.steps)
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        sampler=DistributedSampler(data, shuffle=False),
        pin_memory=on_gpu,
    )
    model = DistributedDataParallel(network(args.width).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for step, (images, labels) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            samples = step * args.batch_size * ranks
            speed = samples / (time.perf_counter() - began)
            print(f"step {step}/{args.steps} loss {loss.item():.4f} samples {samples} ({speed:.0f} samples/s)")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
