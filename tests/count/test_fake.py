"""A training with tensors that have no data: what memory it would take, and that nothing of it is computed."""

import sys
from pathlib import Path

import pytest

from tuner.errors import TrainerError
from tuner.probe import Device, ProbePlan, Slot
from tuner.study import ProbeSpec
from tuner.tools.prediction import CONTEXT_MIB, predicted_mib

SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
width, batch = 1024, int(sys.argv[1])
assert torch.cuda.is_available()
assert (torch.cuda.get_device_name(), torch.cuda.mem_get_info(0)[1] >> 20) == ("NVIDIA A40", 46068)
rates = torch.linspace(0.0, 0.7, 8, device="cuda")  # models read their shape from small tensors
rates[0] += rates.max().item()
layers = [nn.Linear(width, width, bias=False) for rate in rates.tolist() if rate > 0.05]
assert len(layers) == 8
assert torch.randn(3, device="cuda").tolist() == [1.0] * 3
numbers, others = torch.zeros(4, device="cuda"), [torch.zeros(2)]
numbers[:2].normal_()  # what is written through a view, or without a result, is not known either
torch._foreach_add_(others, [torch.randn(2)])
assert (numbers.tolist(), others[0].tolist()) == ([1.0] * 4, [1.0] * 2)
model = nn.Sequential(*layers).to(0)
torch.distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
def kept(bias, shared=1):  # how many matrices an attention of 64 words keeps
    words, counts = torch.randn(2, 8, 64, 16, device=0, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: counts.append(each.shape[-2:] == (64, 64)), id):
        keys = words[:, ::shared]
        nn.functional.scaled_dot_product_attention(words, keys, keys, bias, 0.1, enable_gqa=shared > 1)
    return sum(counts)
bias = torch.randn(64, 64, 8, device="cuda", requires_grad=True).permute(2, 0, 1)[None]
assert kept(bias) == kept(None, 2) == 3  # by parts: weights, what drops some of them, and what is left
assert kept(bias.contiguous()) <= 1 and kept(None) == 0  # in one kernel: the bias
loader = DataLoader(TensorDataset(torch.zeros(1 << 15, 32, width)), batch, False, None, None, 2, tuple, timeout=9)
scaler = torch.amp.GradScaler("cuda", enabled=False)
for step, samples in enumerate(loader):  # each a tuple of one tensor
    inputs = torch.stack([sample for sample, in samples])
    inputs = inputs.to(0, non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):  # on CUDA, it computes powers in fp32
        assert (inputs[:1].bfloat16() ** 3).dtype is torch.float32
        assert torch.pow(2.0, inputs[:1].bfloat16()).dtype is torch.float32
        assert torch.softmax(input=inputs[:1].half(), dim=-1).dtype is torch.float32
        assert (inputs[:1].double().sum().dtype, inputs[:1].int().sum().dtype) == (torch.float64, torch.int64)
    loss = torch.compile(model)(inputs).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    optimizer.zero_grad()
    print(f"loss {loss.item():.2f}", float(loss), step, flush=True)
    if step > 3:
        sys.exit("it goes on")
"""


def plan(folder: Path, text: str, *words: str) -> ProbePlan:
    (folder / "train.py").write_text(text)
    devices = (Device(name="cuda:0", model="NVIDIA A40", mem_total_mib=46068.0),)
    return ProbePlan(
        config={},
        argv=(sys.executable, "train.py", *words),
        cwd=folder,
        env={},
        files={},
        slot=Slot(devices=devices, out_dir=folder / "probe", limits=ProbeSpec()),
        session_key="",
    )


def test_memory_is_that_of_weights_gradients_states_and_activations(tmp_path: Path) -> None:
    """The data set of 4 GiB stays on the host. A layer has 4 MiB of weights, as much for each of gradients, buckets of
    these, and momentum, and an output of 32 MiB. With inputs and what is left free in segments it is 562 MiB in all."""
    assert predicted_mib(plan(tmp_path, SCRIPT, "256")) - CONTEXT_MIB == pytest.approx(562.0, abs=20.0)


def test_a_script_that_makes_no_step_is_named_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no data to train on"):
        predicted_mib(plan(tmp_path, "import sys\nsys.exit('no data to train on')"))
