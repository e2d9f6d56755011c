"""A small detector, trained with ultralytics' way of giving settings and of printing, on random images.

python train_yolo.py train data=coco8.yaml model=yolo11n.yaml epochs=3 imgsz=64 batch=16 workers=0

The real library needs torchvision and OpenCV; here the loop is written so that it prints as ultralytics does.
"""

import sys
import time
from ast import literal_eval
from itertools import starmap

import torch
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

SETTINGS = {
    "data": "coco8.yaml",
    "model": "yolo11n.yaml",
    "epochs": 3,
    "imgsz": 64,
    "batch": 16,
    "workers": 0,
    "lr0": 0.01,
    "amp": False,
    "val": True,
    "project": "runs",
    "name": "train",
}
IMAGES, VAL_IMAGES, BOXES, WIDTH = 6400, 1280, 4, 12


class Images(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, self.size, self.size, generator=generator)
        return image, torch.rand(BOXES, 5, generator=generator)


class Bar:
    """The bar of ultralytics: drawn over itself, and at its end with the whole time."""

    def __init__(self, loader, desc):
        self.loader, self.desc, self.total = loader, desc, len(loader)

    def __iter__(self):
        began = drawn = time.time()
        self.draw(0, began)
        for n, batch in enumerate(self.loader, start=1):
            yield batch
            if time.time() - drawn > 0.1 or n == self.total:
                drawn = time.time()
                self.draw(n, began)
        print(flush=True)

    def draw(self, n, began):
        passed = time.time() - began
        done = int(12 * n / self.total)
        bar = "━" * done + ("╸" if n < self.total and n else "") + "─" * (12 - done - (n < self.total and n > 0))
        rate = n / passed if passed and n else 0.0
        shown = f"{rate:.1f}it/s" if rate >= 1 or not rate else f"{1 / rate:.1f}s/it"
        left = "" if n in {0, self.total} else f"<{(self.total - n) / rate:.1f}s"
        sys.stdout.write(
            f"\r\033[K{self.desc}: {100 * n // self.total}% {bar} {n}/{self.total} {shown} {passed:.1f}s{left}"
        )
        sys.stdout.flush()


def detector():
    layers, channels = [], 3
    for width in (WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH):
        layers += [nn.Conv2d(channels, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, BOXES * 5))


def losses_of(model, images, boxes):
    found = model(images).view(-1, BOXES, 5).sigmoid()
    return torch.stack(
        [
            (found[..., :4] - boxes[..., :4]).abs().mean() * 7.5,
            nn.functional.binary_cross_entropy(found[..., 4], boxes[..., 4]),
            (found - boxes).pow(2).mean() * 1.5,
        ]
    )


def main():
    args = dict(SETTINGS)
    for word in sys.argv[1:]:
        key, sign, value = word.partition("=")
        if sign and key not in args:
            raise SystemExit(f"'{key}' is not a valid YOLO argument.")
        if sign:
            args[key] = type(SETTINGS[key])(literal_eval(value)) if not isinstance(SETTINGS[key], str) else value
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"Ultralytics 8.3.203 🚀 Python-3.11 torch-{torch.__version__} {device}")
    print(f"engine/trainer: {', '.join(starmap('{}={}'.format, args.items()))}")
    model = detector().to(device)
    print(f"YOLO11n summary: {len(list(model))} layers, {sum(p.numel() for p in model.parameters()):,} parameters")
    images, val = Images(IMAGES, args["imgsz"]), Images(VAL_IMAGES, args["imgsz"])
    with truth_file.phase("preparation"):
        found = Bar([None] * IMAGES, f"train: Scanning labels... {IMAGES} images, 0 backgrounds, 0 corrupt")
        for _ in found:
            time.sleep(0.0003)
    more = {"num_workers": args["workers"], "batch_size": args["batch"]}
    train_loader = DataLoader(images, shuffle=True, **more)
    val_loader = DataLoader(val, num_workers=args["workers"], batch_size=2 * args["batch"])
    optimizer = torch.optim.SGD(model.parameters(), args["lr0"], momentum=0.937)
    print(f"Image sizes {args['imgsz']} train, {args['imgsz']} val\nUsing {args['workers']} dataloader workers")
    print(f"Starting training for {args['epochs']} epochs...")
    began = time.time()
    for epoch in range(args["epochs"]):
        model.train()
        names = ("Epoch", "GPU_mem", "box_loss", "cls_loss", "dfl_loss", "Instances", "Size")
        print(("\n" + "%11s" * 7) % names)
        mean = torch.zeros(3)
        bar = Bar(train_loader, "")
        for i, (batch, boxes) in enumerate(bar):
            batch, boxes = batch.to(device), boxes.to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=args["amp"]):
                items = losses_of(model, batch, boxes)
            optimizer.zero_grad()
            items.sum().backward()
            optimizer.step()
            truth_file.step(len(batch))
            mean = (mean * i + items.detach().cpu()) / (i + 1)
            memory = f"{torch.cuda.memory_reserved() / 1e9 if device.type == 'cuda' else 0:.3g}G"
            bar.desc = ("%11s" * 2 + "%11.4g" * 5) % (
                f"{epoch + 1}/{args['epochs']}",
                memory,
                *mean,
                boxes[..., 0].numel(),
                args["imgsz"],
            )
        if args["val"]:
            model.eval()
            desc = ("%22s" + "%11s" * 6) % ("Class", "Images", "Instances", "Box(P", "R", "mAP50", "mAP50-95)")
            with truth_file.phase("evaluation"), torch.no_grad():
                for batch, boxes in Bar(val_loader, desc):
                    losses_of(model, batch.to(device), boxes.to(device))
            print(("%22s" + "%11i" * 2 + "%11.3g" * 4) % ("all", VAL_IMAGES, VAL_IMAGES * BOXES, 0, 0, 0, 0))
    print(f"\n{args['epochs']} epochs completed in {(time.time() - began) / 3600:.3f} hours.")


if __name__ == "__main__":
    main()
