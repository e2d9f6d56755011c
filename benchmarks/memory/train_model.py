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

LENGTH, CLASSES, OBJECTS, SIDE = 512, 1000, 21, 224
"""Tokens of a text, classes of images and of pixels, and pixels of a side."""
MELS, FRAMES, SPOKEN = 80, 3000, 448
"""Bands and frames of a sound, and tokens of what it says: Whisper's own sizes."""
VISION = {
    "resnet50": "sgd",
    "convnext_tiny": "adamw",
    "vit_b_16": "adamw",
    "efficientnet_v2_s": "sgd",
    "swin_t": "adamw",
    "densenet121": "sgd",
    "regnet_y_8gf": "sgd",
    "deeplabv3_resnet50": "sgd",
}
"""Model of torchvision → its optimizer."""
IN_BF16 = {"convnext_tiny", "vit_b_16", "gpt2", "llama", "swin_t", "regnet_y_8gf", "opt", "whisper"}
"""Models that autocast to bf16; the others compute in fp32."""
OF_BF16 = {"qwen2"}
"""Models whose weights are of bf16."""


LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "use_cache": False,
}
QWEN2 = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "use_cache": False,
}
"""Qwen2-0.5B."""
ENCODER_DECODER = {
    "d_model": 768,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}
BART = {**ENCODER_DECODER, "encoder_layers": 6, "decoder_layers": 6}
"""BART-base."""
WHISPER = {**ENCODER_DECODER, "encoder_layers": 12, "decoder_layers": 12}
"""Whisper-small."""


TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "bert": ("BertForMaskedLM", "BertConfig", {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0, "pad_token_id": 0}),
    "opt": ("OPTForCausalLM", "OPTConfig", {}),
    "bart": ("BartForConditionalGeneration", "BartConfig", BART),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", QWEN2),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
}
"""Model → its classes in transformers, and what is not usual of its sizes; all with AdamW."""


def made(name: str) -> nn.Module:
    """Return a model with random weights."""
    if name in TEXT:
        import transformers  # noqa: PLC0415 - it takes seconds

        kind, config, sizes = TEXT[name]
        model = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
        return model.to(torch.bfloat16) if name in OF_BF16 else model
    import torchvision  # noqa: PLC0415 - as above

    nothing = {"weights": None, "weights_backbone": None} if name.startswith("deeplab") else {"weights": None}
    return torchvision.models.get_model(name, **nothing)


def step_of(name: str, model: nn.Module, batch_size: int, device: str) -> Callable[[], Tensor]:
    """Return what makes a batch and computes the loss."""
    config: Any = getattr(model, "config", None)

    def of_text() -> Tensor:
        tokens = torch.randint(config.vocab_size, (batch_size, LENGTH), device=device)
        return model(input_ids=tokens, labels=tokens).loss

    def of_sounds() -> Tensor:
        sounds = torch.randn(batch_size, MELS, FRAMES, device=device)
        tokens = torch.randint(config.vocab_size, (batch_size, SPOKEN), device=device)
        return model(input_features=sounds, labels=tokens).loss

    def of_images() -> Tensor:
        images = torch.randn(batch_size, 3, SIDE, SIDE, device=device)
        return functional.cross_entropy(model(images), torch.randint(CLASSES, (batch_size,), device=device))

    def of_pixels() -> Tensor:
        images = torch.randn(batch_size, 3, SIDE, SIDE, device=device)
        classes = torch.randint(OBJECTS, (batch_size, SIDE, SIDE), device=device)
        return functional.cross_entropy(model(images)["out"], classes)

    others = {"whisper": of_sounds, "deeplabv3_resnet50": of_pixels}
    return others.get(name, of_text if name in TEXT else of_images)


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
