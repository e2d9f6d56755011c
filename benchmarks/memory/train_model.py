"""Trains a model with random weights on random inputs, as people write it; prints its peak of memory after some steps.

    python benchmarks/memory/train_model.py --model resnet50 --batch-size 32 [--steps 4]

Needs torchvision and transformers; nothing is downloaded.
"""

import argparse
import contextlib
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LENGTH, CLASSES, SIDE = 512, 1000, 224
"""Tokens of a text, classes, and pixels of a side."""
VISION = {"resnet50": "sgd", "convnext_tiny": "adamw", "vit_b_16": "adamw", "efficientnet_v2_s": "sgd"}
"""Model of torchvision → its optimizer."""
TEXT = ("gpt2", "bert", "llama", "t5")
"""Models of transformers, all with AdamW."""
IN_BF16 = {"convnext_tiny", "vit_b_16", "gpt2", "llama"}
"""Models that autocast to bf16; the others compute in fp32."""


def text_model(name: str) -> nn.Module:
    """Return a model of transformers by its usual sizes; Llama and T5 are small ones."""
    import transformers as library  # noqa: PLC0415 - it takes seconds

    if name == "gpt2":
        return library.GPT2LMHeadModel(library.GPT2Config())
    if name == "bert":
        return library.BertForMaskedLM(library.BertConfig())
    if name == "t5":
        return library.T5ForConditionalGeneration(library.T5Config(decoder_start_token_id=0, pad_token_id=0))
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16}
    return library.LlamaForCausalLM(library.LlamaConfig(**sizes, num_key_value_heads=8, use_cache=False))


def made(name: str) -> nn.Module:
    """Return a model with random weights."""
    if name in TEXT:
        return text_model(name)
    import torchvision  # noqa: PLC0415 - as above

    return torchvision.models.get_model(name, weights=None)


def step_of(name: str, model: nn.Module, batch_size: int, device: str) -> Callable[[], Tensor]:
    """Return what makes a batch and computes the loss."""
    words = getattr(getattr(model, "config", None), "vocab_size", 0)

    def of_text() -> Tensor:
        tokens = torch.randint(words, (batch_size, LENGTH), device=device)
        return model(input_ids=tokens, labels=tokens).loss

    def of_images() -> Tensor:
        images = torch.randn(batch_size, 3, SIDE, SIDE, device=device)
        return functional.cross_entropy(model(images), torch.randint(CLASSES, (batch_size,), device=device))

    return of_text if name in TEXT else of_images


def estimated(name: str) -> int:
    """Return the bytes that `accelerate estimate-memory` shows for a training with Adam in fp32."""
    from accelerate.utils import calculate_maximum_sizes  # noqa: PLC0415 - as above

    with torch.device("meta"):
        whole, _ = calculate_maximum_sizes(made(name))
    return 4 * whole  # commands/estimate.py: weights, gradients, and two states


def main() -> None:
    """Train, and print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=(*VISION, *TEXT), required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--estimate", action="store_true", help="Print what accelerate estimates, and train nothing.")
    chosen = parser.parse_args()
    if chosen.estimate:
        print(json.dumps({"accelerate": estimated(chosen.model)}))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model: Any = made(chosen.model).to(device).train()
    sgd = VISION.get(chosen.model) == "sgd"
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        if sgd
        else torch.optim.AdamW(model.parameters(), lr=1e-5)
    )
    cast = torch.autocast(device, dtype=torch.bfloat16) if chosen.model in IN_BF16 else contextlib.nullcontext()
    make_loss = step_of(chosen.model, model, chosen.batch_size, device)
    for step in range(chosen.steps):
        with cast:
            loss = make_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.3f}", flush=True)
    free, total = torch.cuda.mem_get_info() if device == "cuda" else (0, 0)
    peaks = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "used": total - free,
    }
    print(json.dumps(peaks))


if __name__ == "__main__":
    main()
