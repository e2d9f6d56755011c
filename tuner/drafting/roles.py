"""What a flag is for, by its name: names only order the proposals, and what is counted inside decides."""

import re
from enum import StrEnum

from tuner.count import as_parameter


class Role(StrEnum):
    """What a flag is for; the value is how its name looks, as `snake` spells it."""

    BATCH = r"(?:(?:per_device_|per_gpu_)?(?:train_)?|micro_)batch_size|batch|bs|b"
    SOME_BATCH = r"(?!.*(?:val|test|num))(?:.*_)?(?:mini|micro)?batch(?:_.*)?"
    """Another flag for a batch, such as `frames_per_batch`, where the command has no usual one."""
    ENVIRONMENTS = r"(?!.*(?:val|test|step))(?:num|n)_(?:.*_)?(?:env\w*|runners?)|training_num"
    """The number of environments, or of the processes that step them."""
    ACCUMULATION = r"(?!eval|val).*accum.*"
    """A number of batches whose gradients are added up before a step of the optimizer."""
    WORKERS = r"(?:(?:dataloader_)?(?:num_|n_))?workers|j"
    """The processes of a loader."""
    OF_WORKERS = r"(?:dataloader_)?(?:prefetch_factor|persistent_workers)"
    """What counts only where a loader has workers."""
    LEARNING = r".*(?:batch|epochs|num_steps|n_steps|rollout|horizon|accumul).*"
    """What probably changes what is learnt."""
    PRECISION = r"(?:use_|native_)?(?:amp|bf16|tf32|dtype|precision|mixed_precision|amp_dtype)|allow_tf32"
    SPEED = r"(?!no_).*(?:channels_last|(?:.*_)?compile(?:_model)?|pin_mem(?:ory)?|(?:.*_)?fused(?:_adamw?|_optim\w*)?)"
    """Switches that change the speed alone."""
    MEMORY = r".*(?:recompute|(?:activation|gradient)_checkpoint|offload).*"
    """Switches that save memory and cost time: worth a try where they are on."""
    DEGREE = r"(?:tensor|pipeline)(?:_model)?_parallel(?:_size|_degree)?|(?:tp|pp)(?:_size|_degree)?"
    """How many ranks share a model's tensors or its layers."""
    CARD = r".*(?:compile|pin_mem|tf32|fused).*"
    """Switches that help on a GPU alone."""

    def has(self, flag: str) -> bool:
        """Return whether a flag of this name has the role."""
        return re.fullmatch(self.value, snake(flag)) is not None


def snake(flag: str) -> str:
    """Return a flag's last part as in `batch_size`, also for `batchSize`; that before it for a last part `enable`."""
    owner = flag.rpartition(".")[0]
    name = owner if flag.endswith(".enable") and owner else flag
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", as_parameter(name)).lower()
