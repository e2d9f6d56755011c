"""ImageNet training as in PyTorch's examples: `main.py` with one spawned process per device, on random images.

python train_imagenet.py -a resnet18 -b 32 -j 2 --dist-url tcp://127.0.0.1:23456 --multiprocessing-distributed \
    --world-size 1 --rank 0 --dummy

The flags and the printed lines are those of the example. `-b` is the batch of all processes together, and `-j` the
workers of all processes together. Without a GPU, two processes train on the CPU. `--dummy-images`, `--image-size` and
`--width` are not in the example: they say how many images there are, and how large images and network are.
"""

import argparse
import os
import shutil
import time
from enum import Enum

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}

parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("data", metavar="DIR", nargs="?", default="imagenet", help="path to dataset (default: imagenet)")
parser.add_argument("-a", "--arch", metavar="ARCH", default="resnet18", choices=BLOCKS, help="model architecture")
parser.add_argument(
    "-j", "--workers", default=2, type=int, metavar="N", help="number of data loading workers (default: 2)"
)
parser.add_argument("--epochs", default=4, type=int, metavar="N", help="number of total epochs to run")
parser.add_argument(
    "-b",
    "--batch-size",
    default=32,
    type=int,
    metavar="N",
    help="mini-batch size, the total batch size of all GPUs on the current node",
)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, metavar="LR", dest="lr")
parser.add_argument("--momentum", default=0.9, type=float, metavar="M", help="momentum")
parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, metavar="W", dest="weight_decay")
parser.add_argument("-p", "--print-freq", default=10, type=int, metavar="N", help="print frequency (default: 10)")
parser.add_argument("--world-size", default=1, type=int, help="number of nodes for distributed training")
parser.add_argument("--rank", default=0, type=int, help="node rank for distributed training")
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456", type=str, help="url used to set up training")
parser.add_argument("--dist-backend", default="", type=str, help="distributed backend")
parser.add_argument(
    "--multiprocessing-distributed",
    action="store_true",
    help="Use multi-processing distributed training to launch N processes per node, which has N GPUs",
)
parser.add_argument("--seed", default=None, type=int, help="seed for initializing training")
parser.add_argument("--amp", action="store_true", help="use bfloat16 where it is safe")
parser.add_argument("--channels-last", action="store_true", help="use the memory format channels last")
parser.add_argument("--dummy", action="store_true", help="use fake data to benchmark")
parser.add_argument("--dummy-images", default=2560, type=int, help="images of an epoch of fake data")
parser.add_argument("--image-size", default=64, type=int)
parser.add_argument("--width", default=16, type=int, help="channels of the first layer; 64 is usual")


class FakeImages(Dataset):
    """Random images, each drawn when it is asked for."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, self.size, self.size, generator=generator), index % 1000


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.short = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet(arch, width):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(BLOCKS[arch]):
        for place in range(count):
            outputs = width * 2**stage
            layers.append(Block(inputs, outputs, 2 if stage and not place else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def main():
    args = parser.parse_args()
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 2
    devices = devices if args.multiprocessing_distributed else 1
    args.world_size *= devices
    mp.spawn(main_worker, nprocs=devices, args=(devices, args))


def main_worker(gpu, devices, args):
    args.gpu = gpu
    args.rank = args.rank * devices + gpu
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(gpu)
        print(f"Use GPU: {gpu} for training")
    else:
        torch.set_num_threads(1)
    if args.seed is not None:
        torch.manual_seed(args.seed)
    backend = args.dist_backend or ("nccl" if on_gpu else "gloo")
    dist.init_process_group(backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    print(f"=> creating model '{args.arch}'")
    device = torch.device("cuda", gpu) if on_gpu else torch.device("cpu")
    args.device = device
    model = resnet(args.arch, args.width).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    args.batch_size = int(args.batch_size / devices)
    args.workers = int((args.workers + devices - 1) / devices)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu] if on_gpu else None)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    print("=> Dummy data is used!")
    train_dataset = FakeImages(args.dummy_images, args.image_size)
    val_dataset = FakeImages(args.dummy_images // 8, args.image_size)
    train_sampler = DistributedSampler(train_dataset)
    more = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": on_gpu}
    train_loader = DataLoader(train_dataset, sampler=train_sampler, **more)
    val_loader = DataLoader(val_dataset, sampler=DistributedSampler(val_dataset, shuffle=False), **more)
    best_acc1 = 0.0
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        with truth_file.phase("evaluation"):
            acc1 = validate(val_loader, model, criterion, args)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.rank % devices == 0:
            with truth_file.phase("checkpoint"):
                torch.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")
                if is_best:
                    shutil.copyfile("checkpoint.pth.tar", "model_best.pth.tar")
    dist.destroy_process_group()


def on_device(images, target, args):
    images = images.to(args.device, non_blocking=True)
    if args.channels_last:
        images = images.to(memory_format=torch.channels_last)
    return images, target.to(args.device, non_blocking=True)


def train(train_loader, model, criterion, optimizer, epoch, args):
    batch_time, data_time = AverageMeter("Time", ":6.3f"), AverageMeter("Data", ":6.3f")
    losses, top1, top5 = AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f"), AverageMeter("Acc@5", ":6.2f")
    progress = ProgressMeter(len(train_loader), [batch_time, data_time, losses, top1, top5], prefix=f"Epoch: [{epoch}]")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        data_time.update(time.time() - end)
        images, target = on_device(images, target, args)
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1, images.size(0))
        top5.update(acc5, images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth_file.step(images.size(0))
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)


def validate(val_loader, model, criterion, args):
    batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
    losses = AverageMeter("Loss", ":.4e", Summary.NONE)
    top1, top5 = AverageMeter("Acc@1", ":6.2f"), AverageMeter("Acc@5", ":6.2f")
    progress = ProgressMeter(len(val_loader), [batch_time, losses, top1, top5], prefix="Test: ")
    model.eval()
    with torch.no_grad():
        end = time.time()
        for i, (images, target) in enumerate(val_loader):
            images, target = on_device(images, target, args)
            output = model(images)
            acc1, acc5 = accuracy(output, target, topk=(1, 5))
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(acc1, images.size(0))
            top5.update(acc5, images.size(0))
            batch_time.update(time.time() - end)
            end = time.time()
            if i % args.print_freq == 0:
                progress.display(i + 1)
    progress.display_summary()
    return top1.avg


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name, self.fmt, self.summary_type = name, fmt, summary_type
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

    def summary(self):
        return "" if self.summary_type is Summary.NONE else f"{self.name} {self.avg:.3f}"


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix=""):
        digits = len(str(num_batches))
        self.batch_fmtstr = "[{:" + str(digits) + "d}/" + str(num_batches) + "]"
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        print("\t".join([self.prefix + self.batch_fmtstr.format(batch), *map(str, self.meters)]))

    def display_summary(self):
        print(" ".join([" *", *(meter.summary() for meter in self.meters)]))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        correct = pred.eq(target[:, None])
        return [correct[:, :k].any(1).float().mean().item() * 100 for k in topk]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
