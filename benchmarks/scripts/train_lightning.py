"""Lightning: a classifier with a validation after each epoch, on two ranks; the library prints its own bars.

python train_lightning.py --accelerator cpu --devices 2 --batch_size 32 --max_epochs 4
"""

import argparse

import lightning as L
import torch
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randn(1, 28, 28, generator=torch.Generator().manual_seed(index)), index % 10


class LitModel(L.LightningModule):
    def __init__(self, hidden, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 196, hidden),
            nn.ReLU(), nn.Linear(hidden, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        truth_file.step(len(batch[0]))

    def on_validation_start(self):
        truth_file.begin("evaluation")

    def on_validation_end(self):
        truth_file.end("evaluation")

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--max_epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(42)
    loaders = {"batch_size": args.batch_size, "num_workers": args.num_workers}
    trainer = L.Trainer(
        accelerator=args.accelerator,
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        precision=args.precision,
        max_epochs=args.max_epochs,
    )
    trainer.fit(
        LitModel(args.hidden, args.lr),
        DataLoader(Digits(12_000), shuffle=True, **loaders),
        DataLoader(Digits(2_000), **loaders),
    )


if __name__ == "__main__":
    main()
