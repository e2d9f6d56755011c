"""What `scripts` draws from: cards, kinds of scripts, the parameters that users list, and choices that fail."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.study.space import Config, Space
from tuner.study.spec import ParameterSpec, StudySpec

MOST_CONFIGS = 2_600
"""A user's space is about as large at most. Parameters are left out of larger ones."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card. Its rates are those that large products reach, in TFLOP/s and GB/s."""

    model: str
    mib: float
    fp32: float
    tf32: float
    half: float
    gb_s: float


CARDS = {
    24: (
        Card("RTX 4090", 24_564, 60, 75, 150, 900),
        Card("RTX 3090", 24_576, 28, 33, 62, 820),
        Card("A10", 23_028, 25, 50, 100, 520),
    ),
    80: (Card("A100", 81_920, 19, 120, 260, 1_750), Card("H100", 81_559, 52, 330, 640, 2_900)),
    141: (Card("H200", 143_771, 52, 340, 680, 4_200),),
}
"""Memory in GB → the cards that have it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of script. Each pair holds the ends of a logarithmic range, from which a seed draws."""

    params_m: tuple[float, float]
    """Million weights."""
    gflop: tuple[float, float]
    """Of one sample, forward and backward."""
    sample_mib: tuple[float, float]
    """The activations of one sample in fp32."""
    kernels: tuple[float, float]
    """The kernels of one step without the optimizer."""
    input_mib: tuple[float, float]
    """One sample as the loader hands it over."""
    decode_ms: tuple[float, float] | None = None
    """The processor time that the loader takes for a sample; None where data lie on the card."""
    head_mib: float = 0.0
    """What one sample needs in fp32 in any data type, such as logits."""
    images: bool = False
    ragged: float = 0.0
    """The probability that batches differ in length."""
    most: tuple[int, ...] = (256, 512, 1024)
    """The largest batch that its user lists is one of these."""
    epoch: tuple[float, float] = (2e4, 2e6)
    """Samples."""


KINDS = {
    "gpt": Kind(
        params_m=(20, 400),
        gflop=(30, 1_200),
        sample_mib=(80, 1_200),
        kernels=(700, 2_500),
        input_mib=(0.002, 0.01),
        head_mib=100,
        most=(512, 1024),
        epoch=(1e5, 1e7),
    ),
    "images": Kind(
        params_m=(5, 90),
        gflop=(4, 100),
        sample_mib=(40, 320),
        kernels=(500, 1_800),
        input_mib=(0.5, 0.7),
        decode_ms=(4, 25),
        images=True,
        most=(512, 1024, 1024),
    ),
    "segmentation": Kind(
        params_m=(8, 70),
        gflop=(150, 3_000),
        sample_mib=(400, 3_500),
        kernels=(600, 2_500),
        input_mib=(3, 40),
        decode_ms=(10, 150),
        images=True,
        most=(64, 128, 256, 512),
        epoch=(500, 3e4),
    ),
    "fine-tuning": Kind(
        params_m=(60, 800),
        gflop=(50, 1_500),
        sample_mib=(100, 1_500),
        kernels=(800, 3_000),
        input_mib=(0.002, 0.02),
        decode_ms=(0.1, 2),
        ragged=0.5,
        most=(256, 512, 1024),
        epoch=(3e3, 3e5),
    ),
    "speech": Kind(
        params_m=(10, 300),
        gflop=(40, 900),
        sample_mib=(80, 1_200),
        kernels=(900, 3_500),
        input_mib=(0.3, 2),
        decode_ms=(3, 40),
        ragged=0.8,
        most=(256, 512, 1024),
        epoch=(5e3, 3e5),
    ),
    "tabular": Kind(
        params_m=(0.05, 20),
        gflop=(0.0005, 0.2),
        sample_mib=(0.005, 0.6),
        kernels=(60, 400),
        input_mib=(0.0005, 0.05),
        decode_ms=(0.01, 0.4),
        most=(1024, 2048, 4096),
        epoch=(2e4, 5e6),
    ),
}


def compiled(config: Config) -> bool:
    """Check whether a config uses `torch.compile`."""
    return bool(config.get("compile")) or config.get("compile_mode", "off") != "off"


def space_of(specs: Mapping[str, ParameterSpec]) -> Space:
    return StudySpec.model_validate({"name": "scripts", "trainer": {"name": "invented"}, "space": specs}).build_space()


def listed(draw: random.Random, kind: Kind, loads: bool) -> dict[str, ParameterSpec]:
    """Return the parameters that a user lists."""
    smallest, most = draw.choice((1, 1, 2, 4, 8)), draw.choice(kind.most)
    sizes = [smallest << power for power in range(13) if smallest << power <= most]
    if draw.random() < 0.25:
        sizes = sorted({*sizes, *(3 * size // 2 for size in sizes if 32 <= size < most)})
    yes_no = ParameterSpec(choices=(False, True))
    space = {
        "batch_size": ParameterSpec(choices=tuple(sizes)),
        "dtype": ParameterSpec(choices=draw.choice((("fp32", "bf16"), ("fp32", "bf16"), ("fp32", "bf16", "fp16")))),
    }
    if draw.random() < 0.2:
        modes = draw.choice((("off", "default", "reduce-overhead"), ("off", "default", "max-autotune")))
        space["compile_mode"] = ParameterSpec(choices=modes)
    elif draw.random() < 0.9:
        space["compile"] = yes_no
    usual = {"tf32": 0.8, "fused": 0.8, "channels_last": 0.9 if kind.images else 0.08}
    if not kind.images and kind.most[-1] <= 1024:
        usual["checkpointing"] = 0.3
    space |= {name: yes_no for name, chance in usual.items() if draw.random() < chance}
    if loads:
        some = draw.choice(((0, 2, 4, 8), (0, 4, 8, 16), (2, 4, 8), (0, 2, 4, 8, 16), (1, 4, 16)))
        space["num_workers"] = ParameterSpec(choices=some)
        if draw.random() < 0.6:
            when = {} if draw.random() < 0.15 else {"num_workers": {"min": 1}}
            chosen = draw.choice(((2, 4), (2, 4, 8)))
            space["prefetch_factor"] = ParameterSpec.model_validate({"choices": chosen, "when": when})
        if draw.random() < 0.7:
            space["pin_memory"] = yes_no
    names = [name for name in space if name not in {"batch_size", "dtype", "num_workers"}]
    while sum(1 for _ in space_of(space).configs()) > MOST_CONFIGS:
        del space[names.pop(draw.randrange(len(names)))]
    return space


Fails = Callable[[Config], bool]


def cause(draw: random.Random, space: Mapping[str, ParameterSpec], name: str) -> tuple[str | None, Fails]:
    """Return a choice that fails on this machine for a reason that is not memory, and what it hits."""
    # These two are refused on any machine.
    if "prefetch_factor" in space and not space["prefetch_factor"].when and 0 in space["num_workers"].values:
        return "prefetch_factor needs workers", lambda config: config["num_workers"] == 0
    if "channels_last" in space and draw.random() < {"images": 0.0, "segmentation": 0.3}.get(name, 0.7):
        return "channels_last needs four dimensions", lambda config: bool(config["channels_last"])
    words = [word for word in ("bf16", "fp16") if word in space["dtype"].values]
    word = draw.choice(words)
    causes: dict[str, Fails] = {f"an operator has no {word}": lambda config: config["dtype"] == word}
    if "compile" in space or "compile_mode" in space:
        causes |= {
            "compile finds no compiler": compiled,
            f"compile fails with {word}": lambda config: compiled(config) and config["dtype"] == word,
        }
    if "fused" in space:
        causes["fused is not supported"] = lambda config: bool(config["fused"])
    if {"compile", "channels_last"} <= set(space):
        causes["compile fails with channels_last"] = lambda config: bool(config["compile"] and config["channels_last"])
    sizes = space["batch_size"].values
    if sizes[0] == 1:
        causes["batch norm needs two samples"] = lambda config: config["batch_size"] == 1
    limit = float(sizes[-2])
    causes["index beyond 32 bits"] = lambda config: float(config["batch_size"]) > limit
    if draw.random() < 0.6:
        return None, lambda _: False
    one = draw.choice(list(causes))
    return one, causes[one]
