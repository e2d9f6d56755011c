"""An image classifier, trained as timm's `train.py` does it, with its flags and its lines, on random images.

python train_timm.py --model convnet --synthetic -b 32 -j 2 --epochs 3 --lr 0.05

The real script needs torchvision and its images; here the loop is written so that it prints as timm does.
"""

import argparse
import logging
import time

import torch
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

_logger = logging.getLogger("train")

parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("--data-dir", metavar="DIR", help="path to dataset (root dir)")
parser.add_argument("--synthetic", action="store_true", help="random images")
parser.add_argument("--model", default="convnet", type=str, metavar="MODEL", help='Name of model (default: "convnet")')
parser.add_argument("--img-size", type=int, default=64, metavar="N", help="Image size")
parser.add_argument("--num-samples", type=int, default=6400, metavar="N", help="training images of an epoch")
parser.add_argument("-b", "--batch-size", type=int, default=32, metavar="N", help="Input batch size for training")
parser.add_argument("-vb", "--validation-batch-size", type=int, default=None, metavar="N")
parser.add_argument("--grad-accum-steps", type=int, default=1, metavar="N", help="gradient accumulation steps")
parser.add_argument("--opt", default="sgd", type=str, metavar="OPTIMIZER")
parser.add_argument("--lr", type=float, default=0.05, metavar="LR", help="learning rate")
parser.add_argument("--epochs", type=int, default=3, metavar="N", help="number of epochs to train")
parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="how many training processes to use")
parser.add_argument("--log-interval", type=int, default=25, metavar="N", help="batches to wait before logging")
parser.add_argument("--amp", action="store_true", default=False, help="use mixed precision")
parser.add_argument("--channels-last", action="store_true", default=False, help="Use channels_last memory layout")
parser.add_argument("--pin-mem", action="store_true", default=False, help="Pin CPU memory in DataLoader")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=str)


class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Synthetic(Dataset):
    def __init__(self, size, count):
        self.size, self.count = size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, self.size, self.size, generator=generator), index % 100


def create_model():
    layers, channels = [], 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, 2, 1), nn.BatchNorm2d(width), nn.GELU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, args, scheduler):
    update_time_m, data_time_m, losses_m = AverageMeter(), AverageMeter(), AverageMeter()
    model.train()
    accum_steps = args.grad_accum_steps
    last_accum_steps = len(loader) % accum_steps
    updates_per_epoch = (len(loader) + accum_steps - 1) // accum_steps
    last_batch_idx = len(loader) - 1
    last_batch_idx_to_accum = len(loader) - last_accum_steps
    data_start_time = update_start_time = time.time()
    optimizer.zero_grad()
    update_sample_count = 0
    for batch_idx, (images, target) in enumerate(loader):
        last_batch = batch_idx == last_batch_idx
        need_update = last_batch or (batch_idx + 1) % accum_steps == 0
        update_idx = batch_idx // accum_steps
        if batch_idx >= last_batch_idx_to_accum:
            accum_steps = last_accum_steps
        images, target = images.to(args.device), target.to(args.device)
        if args.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        data_time_m.update(accum_steps * (time.time() - data_start_time))
        with torch.autocast(torch.device(args.device).type, torch.bfloat16, enabled=args.amp):
            loss = loss_fn(model(images), target) / accum_steps
        loss.backward()
        losses_m.update(loss.item() * accum_steps, images.size(0))
        update_sample_count += images.size(0)
        if not need_update:
            data_start_time = time.time()
            continue
        optimizer.step()
        optimizer.zero_grad()
        truth_file.step(update_sample_count)
        time_now = time.time()
        update_time_m.update(time.time() - update_start_time)
        update_start_time = time_now
        if update_idx % args.log_interval == 0 or last_batch:
            _logger.info(
                f"Train: {epoch} [{update_idx:>4d}/{updates_per_epoch} "
                f"({100.0 * (update_idx + 1) / updates_per_epoch:>3.0f}%)]  "
                f"Loss: {losses_m.val:#.3g} ({losses_m.avg:#.3g})  "
                f"Time: {update_time_m.val:.3f}s, {update_sample_count / update_time_m.val:>7.2f}/s  "
                f"({update_time_m.avg:.3f}s, {update_sample_count / update_time_m.avg:>7.2f}/s)  "
                f"LR: {optimizer.param_groups[0]['lr']:.3e}  "
                f"Data: {data_time_m.val:.3f} ({data_time_m.avg:.3f})"
            )
        update_sample_count = 0
        data_start_time = time.time()
    scheduler.step()


def validate(model, loader, loss_fn, args):
    batch_time_m, losses_m, top1_m, top5_m = AverageMeter(), AverageMeter(), AverageMeter(), AverageMeter()
    model.eval()
    end = time.time()
    last_idx = len(loader) - 1
    with torch.inference_mode():
        for batch_idx, (images, target) in enumerate(loader):
            images, target = images.to(args.device), target.to(args.device)
            output = model(images)
            losses_m.update(loss_fn(output, target).item(), images.size(0))
            for meter, k in ((top1_m, 1), (top5_m, 5)):
                hit = output.topk(k, 1)[1].eq(target[:, None]).any(1).float().mean().item()
                meter.update(100 * hit, images.size(0))
            batch_time_m.update(time.time() - end)
            end = time.time()
            if batch_idx == last_idx or batch_idx % args.log_interval == 0:
                _logger.info(
                    f"Test: [{batch_idx:>4d}/{last_idx}]  "
                    f"Time: {batch_time_m.val:.3f} ({batch_time_m.avg:.3f})  "
                    f"Loss: {losses_m.val:>7.3f} ({losses_m.avg:>6.3f})  "
                    f"Acc@1: {top1_m.val:>7.3f} ({top1_m.avg:>7.3f})  "
                    f"Acc@5: {top5_m.val:>7.3f} ({top5_m.avg:>7.3f})"
                )


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    args = parser.parse_args()
    _logger.info(f"Training with a single process on 1 device ({args.device}).")
    model = create_model().to(args.device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    _logger.info(f"Model {args.model} created, param count:{sum(m.numel() for m in model.parameters())}")
    more = {"num_workers": args.workers, "pin_memory": args.pin_mem}
    train = DataLoader(Synthetic(args.img_size, args.num_samples), args.batch_size, True, drop_last=True, **more)
    test = DataLoader(
        Synthetic(args.img_size, args.num_samples // 8), args.validation_batch_size or args.batch_size, **more
    )
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    _logger.info(f"Scheduled epochs: {args.epochs} (epochs). LR stepped per epoch.")
    for epoch in range(args.epochs):
        train_one_epoch(epoch, model, train, optimizer, loss_fn, args, scheduler)
        with truth_file.phase("evaluation"):
            validate(model, test, loss_fn, args)


if __name__ == "__main__":
    main()
