"""A policy that imitates a robot, trained with LeRobot's flags and lines, on random observations.

python train_lerobot.py --policy.type=act --dataset.repo_id=user/pick --batch_size=8 --num_workers=2 --steps=3000

The real library needs data sets from its hub; here the loop is written so that it prints as `lerobot-train` does.
"""

import argparse
import datetime
import logging
import time

import torch
import truth_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, EPISODES, CHUNK = 50_000, 100, 20


class Episodes(Dataset):
    def __len__(self):
        return FRAMES

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {
            "observation.image": torch.rand(3, 48, 64, generator=generator),
            "observation.state": torch.rand(6, generator=generator),
            "action": torch.rand(CHUNK, 6, generator=generator),
        }


class Policy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(width)
        )
        self.body = nn.Linear(6, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.mix = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.queries = nn.Parameter(torch.randn(CHUNK, width))
        self.head = nn.Linear(width, 6)

    def forward(self, batch):
        seen = torch.stack([self.eyes(batch["observation.image"]), self.body(batch["observation.state"])], 1)
        asked = self.queries.expand(len(seen), -1, -1)
        found = self.head(self.mix(torch.cat([seen, asked], 1))[:, 2:])
        return nn.functional.l1_loss(found, batch["action"])


def big(number):
    """Write a number as LeRobot does: 2K, 31K, 1M."""
    for suffix in ("", "K", "M", "B"):
        if abs(number) < 1000:
            return f"{number:.0f}{suffix}"
        number /= 1000
    return f"{number:.0f}T"


def formatted(record):
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    return f"{record.levelname} {now} {record.pathname[-15:]:>15}:{record.lineno:<4} {record.getMessage()}"


class Metrics:
    """The means since the last line."""

    def __init__(self):
        self.sums, self.count = dict.fromkeys(("loss", "grdn", "updt_s", "data_s"), 0.0), 0

    def update(self, **values):
        self.count += 1
        for name, value in values.items():
            self.sums[name] += value

    def mean(self, name):
        return self.sums[name] / self.count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy.type", default="act")
    parser.add_argument("--policy.device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--policy.dim_model", type=int, default=64)
    parser.add_argument("--dataset.repo_id", default="user/pick")
    parser.add_argument("--output_dir", default="outputs/train")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--log_freq", type=int, default=50)
    parser.add_argument("--save_freq", type=int, default=1000)
    args = vars(parser.parse_args())
    handler = logging.StreamHandler()
    handler.format = formatted
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    device = torch.device(args["policy.device"])
    logging.info("Creating dataset")
    data = Episodes()
    logging.info("Creating policy")
    policy = Policy(args["policy.dim_model"]).to(device)
    policy({key: value[None].to(device) for key, value in data[0].items()})
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    logging.info("Creating optimizer and scheduler")
    logging.info(f"cfg.steps={args['steps']} ({big(args['steps'])})")
    logging.info(f"dataset.num_frames={FRAMES} ({big(FRAMES)})")
    logging.info(f"dataset.num_episodes={EPISODES}")
    logging.info(f"Effective batch size: {args['batch_size']} x 1 = {args['batch_size']}")
    learned = sum(p.numel() for p in policy.parameters())
    logging.info(f"num_learnable_params={learned} ({big(learned)})")
    loader = DataLoader(
        data, args["batch_size"], shuffle=True, num_workers=args["num_workers"], pin_memory=device.type == "cuda"
    )
    logging.info("Start offline training on a fixed dataset")
    batches, metrics = iter(loader), Metrics()
    for step in range(1, args["steps"] + 1):
        began = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        batch = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        data_s, began = time.perf_counter() - began, time.perf_counter()
        loss = policy(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        truth_file.step(len(batch["action"]))
        metrics.update(loss=loss.item(), grdn=norm.item(), updt_s=time.perf_counter() - began, data_s=data_s)
        if step % args["log_freq"] == 0:
            samples = step * args["batch_size"]
            logging.info(
                f"step:{big(step)} smpl:{big(samples)} ep:{big(samples * EPISODES / FRAMES)} "
                f"epch:{samples / FRAMES:.2f} loss:{metrics.mean('loss'):.3f} grdn:{metrics.mean('grdn'):.3f} "
                f"lr:1.0e-05 updt_s:{metrics.mean('updt_s'):.3f} data_s:{metrics.mean('data_s'):.3f}"
            )
            metrics = Metrics()
        if step % args["save_freq"] == 0:
            logging.info(f"Checkpoint policy after step {step}")
            with truth_file.phase("checkpoint"):
                torch.save(policy.state_dict(), "policy.pt")
    logging.info("End of training")


if __name__ == "__main__":
    main()
