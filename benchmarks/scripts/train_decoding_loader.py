"""A classifier of JPEG images, with the flags and lines of torchvision's reference scripts.

python train_decoding_loader.py -b 32 -j 2 --epochs 4

Each image is decoded, cropped and scaled by pillow when it is asked for. The files are made at the start, in memory.
"""

import argparse
import datetime
import io
import time
from collections import defaultdict, deque

import numpy as np
import torch
import truth_file
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photographs(Dataset):
    def __init__(self, count, side, size):
        draw = np.random.default_rng(0)
        self.files = []
        for _ in range(32):
            small = Image.fromarray(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8))
            file = io.BytesIO()
            small.resize((side, side)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        left, top = index % 32, index % 24
        image = image.crop((left, top, image.width - 32 + left, image.height - 24 + top)).resize((self.size, self.size))
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255, index % 10


class SmoothedValue:
    def __init__(self, fmt):
        self.recent, self.total, self.count, self.fmt = deque(maxlen=20), 0.0, 0, fmt

    def update(self, value):
        self.recent.append(value)
        self.count += 1
        self.total += value

    def __str__(self):
        median = float(np.median(self.recent)) if self.recent else 0.0
        mean = self.total / self.count if self.count else 0.0
        return self.fmt.format(median=median, global_avg=mean, value=self.recent[-1] if self.recent else 0.0)


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(lambda: SmoothedValue("{median:.4f} ({global_avg:.4f})"))

    def log_every(self, loader, print_freq, header):
        start = end = time.time()
        step_time, data_time = SmoothedValue("{global_avg:.4f}"), SmoothedValue("{global_avg:.4f}")
        width = len(str(len(loader)))
        for i, batch in enumerate(loader):
            data_time.update(time.time() - end)
            yield batch
            step_time.update(time.time() - end)
            if i % print_freq == 0:
                eta = datetime.timedelta(seconds=int(step_time.total / step_time.count * (len(loader) - i)))
                shown = "  ".join(f"{name}: {meter}" for name, meter in self.meters.items())
                print(
                    f"{header}  [{i:{width}d}/{len(loader)}]  eta: {eta}  {shown}  time: {step_time}  data: {data_time}"
                )
            end = time.time()
        print(f"{header} Total time: {datetime.timedelta(seconds=int(time.time() - start))}")


def train_one_epoch(model, optimizer, loader, device, epoch, args):
    model.train()
    logger = MetricLogger()
    logger.meters["lr"] = SmoothedValue("{value}")
    logger.meters["img/s"] = SmoothedValue("{value}")
    for image, target in logger.log_every(loader, args.print_freq, f"Epoch: [{epoch}]"):
        start_time = time.time()
        loss = nn.functional.cross_entropy(model(image.to(device)), target.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth_file.step(len(image))
        logger.meters["loss"].update(loss.item())
        logger.meters["lr"].update(args.lr)
        logger.meters["img/s"].update(len(image) / (time.time() - start_time))


def evaluate(model, loader, device, args):
    model.eval()
    logger = MetricLogger()
    with torch.inference_mode():
        for image, target in logger.log_every(loader, args.print_freq, "Test: "):
            logger.meters["loss"].update(nn.functional.cross_entropy(model(image.to(device)), target.to(device)).item())


def main():
    parser = argparse.ArgumentParser(description="PyTorch Classification Training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=str)
    parser.add_argument("-b", "--batch-size", default=32, type=int, help="images per gpu")
    parser.add_argument("--epochs", default=4, type=int, metavar="N", help="number of total epochs to run")
    parser.add_argument("-j", "--workers", default=2, type=int, metavar="N", help="number of data loading workers")
    parser.add_argument("--lr", default=0.1, type=float, help="initial learning rate")
    parser.add_argument("--print-freq", default=10, type=int, help="print frequency")
    parser.add_argument("--images", default=2560, type=int, help="images of an epoch")
    parser.add_argument("--jpeg-size", default=384, type=int, help="pixels of a side of a file's image")
    parser.add_argument("--train-crop-size", default=64, type=int)
    args = parser.parse_args()
    print(args)
    device = torch.device(args.device)
    print("Loading data")
    with truth_file.phase("preparation"):
        data = Photographs(args.images, args.jpeg_size, args.train_crop_size)
        test = Photographs(args.images // 8, args.jpeg_size, args.train_crop_size)
    print("Creating data loaders")
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=args.workers)
    test_loader = DataLoader(test, args.batch_size, num_workers=args.workers)
    print("Creating model")
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    print("Start training")
    for epoch in range(args.epochs):
        train_one_epoch(model, optimizer, loader, device, epoch, args)
        with truth_file.phase("evaluation"):
            evaluate(model, test_loader, device, args)


if __name__ == "__main__":
    main()
