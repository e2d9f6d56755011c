"""What Lightning and accelerate themselves offer to find a batch size, on the loop of `train_sleeping_loader.py`.

    python finders.py lightning|accelerate        prints the batch size that was found

Runs in a Python that has these libraries. The lines of each function are those that a user of it has to write.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import nn
from torch.utils.data import DataLoader
from train_sleeping_loader import Store

RECORDS, ANSWER_MS, OWN_BATCH = 4000, 5.0, 32


def network() -> nn.Module:
    """Return the network of the script."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))


def by_lightning() -> int:
    """Lightning's batch-size finder, as its documentation shows it: the script as a LightningModule, then Tuner."""
    import lightning as L  # noqa: PLC0415, N812
    from lightning.pytorch.tuner import Tuner  # noqa: PLC0415

    class Script(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size, self.net = OWN_BATCH, network()

        def train_dataloader(self) -> DataLoader:
            return DataLoader(Store(RECORDS, ANSWER_MS), batch_size=self.batch_size, shuffle=True)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    return Tuner(trainer).scale_batch_size(Script()) or OWN_BATCH


def by_accelerate() -> int:
    """The decorator of accelerate, as its documentation shows it: it halves the batch when memory runs out."""
    from accelerate.utils import find_executable_batch_size  # noqa: PLC0415

    @find_executable_batch_size(starting_batch_size=128)
    def train(batch_size: int) -> int:
        model, loader = network(), DataLoader(Store(RECORDS, ANSWER_MS), batch_size=batch_size)
        optimizer = torch.optim.Adam(model.parameters())
        for step, (inputs, labels) in enumerate(loader):
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            if step == 3:
                break
        return batch_size

    return train()


if __name__ == "__main__":
    print("found", {"lightning": by_lightning, "accelerate": by_accelerate}[sys.argv[1]]())
