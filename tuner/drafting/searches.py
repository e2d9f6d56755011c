"""Which flags of a command are worth a search, over which values.

Names of flags only order the proposals; what is counted inside a training decides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner.count import Flag, TrainingCounts, as_parameter
from tuner.drafting.command_lines import Setting, settings
from tuner.errors import option
from tuner.study import Value, launches, value_text


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
    CARD = r".*(?:compile|pin_mem|tf32|fused).*"
    """Switches that help on a GPU alone."""

    def has(self, flag: str) -> bool:
        """Return whether a flag of this name has the role."""
        return re.fullmatch(self.value, snake(flag)) is not None


def snake(flag: str) -> str:
    """Return the last part of a flag's name in the spelling of `batch_size`, also for `model.batchSize`.

    A last part `enable` says nothing: of `compile.enable`, the name is `compile`.
    """
    owner, _, last = flag.rpartition(".")
    name = owner if owner and last == "enable" else flag
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", as_parameter(name)).lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchedFlag:
    """A flag that is searched, or that is computed from such flags."""

    flag: str
    """The flag as the command or the script spells it, without leading dashes."""
    values: tuple[Value, ...]
    current: Value | None
    """The value that the typed command uses: the typed one, or else the script's default; None where it is unknown."""
    auto: bool = False
    """Whether the tuner itself chooses the values between the first and the last, by the memory that they need."""
    is_switch: bool = False
    """Whether the flag has no value: it is there or not."""
    computed: str = ""
    """The arithmetic of a flag that follows from another one; it is not searched itself."""
    grows: bool = False
    """Whether larger values may be added by how the command uses the devices; never to values that a person names."""
    most: int | None = None
    """The largest value that may be added; None for any."""
    is_balanced: bool = False
    """Whether another flag is computed from this one, so that the total batch stays."""

    @property
    def parameter(self) -> str:
        """The flag's name in the study; a switch keeps its spelling."""
        return self.flag if self.is_switch else as_parameter(self.flag)

    @property
    def file(self) -> str:
        """The configuration file that holds the value; empty for a flag."""
        return self.flag.partition(":")[0] if ":" in self.flag else ""

    @property
    def placeholder(self) -> str:
        """What stands in the command for the flag's value; for a switch, in place of the flag itself."""
        return f"{{flag:{self.flag}}}" if self.is_switch else f"{{{self.parameter}}}"

    @property
    def first(self) -> Value:
        """The value with which the command is watched: its current one, or else the first."""
        return self.values[0] if self.current is None else self.current

    @property
    def ordered(self) -> tuple[Value, ...]:
        """The values with the current one first: a study takes the first value as the default."""
        return tuple(sorted(self.values, key=lambda value: value != self.current))

    @property
    def varies(self) -> bool:
        """Whether it is searched over more than one value."""
        return len(self.values) > 1 and not self.computed

    @property
    def changes_learning(self) -> bool:
        """Whether the flag probably changes what is learnt, and not throughput alone."""
        roles = (Role.BATCH, Role.LEARNING, Role.ENVIRONMENTS)
        return self.varies and not self.is_balanced and any(role.has(self.flag) for role in roles)

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has the same number of samples with each value of the flag.

        A number may be a size, unless the flag is known to be about speed or loading.
        """
        if self.computed:
            return False
        if not self.varies or self.is_precision or self.is_switch or self.is_of_loader or Role.SPEED.has(self.flag):
            return True
        has_numbers = any(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)
        return not has_numbers

    @property
    def is_of_loader(self) -> bool:
        """Whether the flag says how batches are loaded, and not what is in them."""
        return Role.WORKERS.has(self.flag) or Role.OF_WORKERS.has(self.flag)

    @property
    def is_precision(self) -> bool:
        """Whether the flag changes how numbers are rounded, which a person has to allow."""
        return Role.PRECISION.has(self.flag)

    def __str__(self) -> str:
        """Return the flag and its values as `--search` reads them."""
        if self.computed:
            return f"{self.flag} = {self.computed}"
        shown = (f"{self.values[0]}..{self.values[-1]}",) if self.auto else map(value_text, self.ordered)
        return f"{self.flag}={','.join(shown)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of a command once it has been watched."""

    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables before the command."""
    cores: int
    """The cores of a rank."""
    flags: Sequence[Flag] = ()
    """The flags of its script, with the values in force."""
    reader: str = ""
    """What reads the flags, such as `argparse`; empty where nothing is known to."""
    knows_all: bool = False
    """Whether the script has no other flags than these."""
    training: TrainingCounts | None = None
    """What was counted inside the training; None where nothing was."""
    on_gpu: bool = False
    launch: str | None = None
    """The ready-made space that the flags show; it decides its own flags."""
    free_batch: bool = False
    """Whether sizes may vary that change what is learnt."""
    free_precision: bool = False
    """Whether the precision may vary, which may change what is learnt."""

    @property
    def typed_settings(self) -> dict[str, Setting]:
        """Parameter → its setting in the command line."""
        return {setting.parameter: setting for setting in settings(self.words, self.flags)}

    def setting(self, flag: str) -> Setting | None:
        """Return the last setting of a flag, or else the variable of this name; None where the command has neither."""
        named = [setting for setting in settings(self.words, self.flags, [flag]) if setting.is_called(flag)]
        if named:
            return named[-1]
        return Setting(name=flag, value=self.env[flag]) if flag in self.env else None

    @property
    def waits_for_data(self) -> bool:
        """Whether a setting of the data loader may gain anything: the training waits for data 2 % of its time or more.

        False for a training without a loader; True where this was not counted.
        """
        if self.training is None or self.training.shares is None:
            return True
        has_loader = self.training.passes is not None
        return has_loader and self.training.shares.data >= 0.02

    @property
    def micro_batches(self) -> int:
        """How many batches make a step of the optimizer, as far as they are counted."""
        return max(1, round((self.training and self.training.micro_batches) or 1))

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model normalises over a batch: then a smaller part of a batch would change what is learnt."""
        return bool(self.training and self.training.signature.normed)

    @property
    def all_flags(self) -> list[Flag]:
        """The flags of the command and of its script, each with the value in use, but for those of `launch`."""
        of_script = {flag.parameter: flag for flag in self.flags}
        flags: list[Flag] = []
        for setting in self.typed_settings.values():
            typed = Flag(names=(setting.full or setting.name,), value=setting.value)
            # what the script says of the flag, with the name and the value as typed
            flags.append(replace(of_script.get(typed.parameter, typed), names=typed.names, value=typed.value))
        flags += [flag for flag in self.flags if flag.parameter not in self.typed_settings]
        decided = launches()[self.launch].parameters if self.launch else frozenset[str]()
        return [flag for flag in flags if flag.parameter not in decided]


def proposed(known: Known) -> list[SearchedFlag]:
    """Return the flags that are worth a search, precision included, in the order in which a search tries them.

    Sizes that change what is learnt have their current value alone, unless `known.free_batch` lets them vary.
    """
    # sizes, and the loader's workers
    searched = [_searched_size(flag, known) for flag in _sizes(known)]
    worker_flags = (flag for flag in known.all_flags if Role.WORKERS.has(flag.names[0]) and flag.number is not None)
    workers = next(worker_flags, None) if known.waits_for_data else None
    if workers:
        searched.append(_workers(workers, known.cores))
    # switches, and what counts only beside workers
    for flag in known.all_flags:
        search = as_switch(flag, known) if _is_worth_switching(flag, known) else None
        if search is None and workers and Role.OF_WORKERS.has(flag.names[0]):
            current = flag.number or 2  # the default of torch's prefetch_factor
            prefetch = SearchedFlag(flag=flag.names[0], values=tuple(sorted({current, 2, 4, 8})), current=current)
            search = as_switch(flag, known) if "persistent" in flag.parameter else prefetch
        if search:
            searched.append(search)
    # the precision usually gains most, and a model that is compiled starts late
    return sorted(searched, key=lambda search: -1 if search.is_precision else int("compile" in search.parameter))


def _is_worth_switching(flag: Flag, known: Known) -> bool:
    """Return whether the other value of a switch, such as of `--compile`, may gain speed."""
    name = flag.names[0]
    if Role.CARD.has(name) and not known.on_gpu:
        return False
    if Role.SPEED.has(name):
        return known.waits_for_data or "pin" not in name  # pinned memory helps loading alone
    return Role.PRECISION.has(name) or (flag.is_on and Role.MEMORY.has(name))


def _sizes(known: Known) -> list[Flag]:
    """Return the flags with sizes of batches or environments that are worth a search; none where a launch has its own.

    1. They are the typed flags with a usual name.
    2. Without one, they are the typed flags that look like a batch, such as `frames_per_batch`.
    3. Without one of these, it is the first flag of the script with a usual name, at its default.

    Where flags for a part of a batch are among them, such as a micro-batch, these alone: the whole follows from them.
    """
    if known.launch:
        return []
    numbers = [flag for flag in known.all_flags if flag.number]  # not 0: the script computes such a size later
    typed = [flag for flag in numbers if flag.parameter in known.typed_settings]
    sizes = [flag for flag in typed if _is_usual_size(flag)]
    if not sizes:
        sizes = [flag for flag in typed if Role.SOME_BATCH.has(flag.names[0])]
    if not sizes:
        sizes = [flag for flag in numbers if _is_usual_size(flag)][:1]
    parts = [flag for flag in sizes if re.search("micro|per_device", flag.parameter)]
    return parts or sizes


def _is_usual_size(flag: Flag) -> bool:
    """Return whether a flag says how many samples a step takes, or how many environments step together."""
    return Role.BATCH.has(flag.names[0]) or Role.ENVIRONMENTS.has(flag.names[0])


def _searched_size(flag: Flag, known: Known) -> SearchedFlag:
    """Return a size with the values that are searched.

    Usually a size varies only if `known.free_batch` lets it, because it changes what is learnt. But where the optimizer
    adds up the gradients of several batches for each step, another batch size with fewer batches learns the same.
    """
    batches = known.micro_batches
    is_batch_of_several = batches > 1 and not Role.ENVIRONMENTS.has(flag.names[0])
    if known.free_batch or not is_batch_of_several or known.has_batch_norm:
        return with_sizes(flag, known.free_batch)
    return replace(with_sizes(flag, free=False), values=balanced_sizes(flag.number or 1, batches), is_balanced=True)


def with_sizes(flag: Flag, free: bool) -> SearchedFlag:
    """Return a size with fractions and multiples of its current value, or with that value alone if it is not `free`."""
    current = flag.number or 0
    if not free:
        return SearchedFlag(flag=flag.names[0], values=(current,), current=current)
    is_batch = not Role.ENVIRONMENTS.has(flag.names[0])
    factors = (1 / 2, 1, 2, 4, 8) if is_batch else (1 / 4, 1 / 2, 1, 2, 4, 8, 16)
    values = tuple(dict.fromkeys(max(1, int(current * factor)) for factor in factors))
    return SearchedFlag(flag=flag.names[0], values=values, current=current, grows=True)


def _workers(flag: Flag, cores: int) -> SearchedFlag:
    """Return the number of the loader's workers with usual numbers up to that of the cores, beside its current one."""
    current = flag.number or 0
    usual = [number for number in (0, 2, 4, 8, 16) if number <= max(cores, current, 2)]
    values = tuple(sorted({current, *usual}))
    # more workers than cores gain while they wait for data: 16 gained most on two cores where each record took 5 ms
    # (benchmarks/results/alternatives.md); each is a process, which takes memory and time to start (64 is chosen)
    most = min(8 * cores, 64)
    return SearchedFlag(flag=flag.names[0], values=values, current=current, grows=True, most=most)


def as_switch(flag: Flag, known: Known) -> SearchedFlag | None:
    """Return a flag that has few values, with all of them; None for any other flag.

    A switch such as `--amp` is in the command or not. A flag such as `--amp true` has the opposite as its second value,
    and a flag with few choices has all of them.
    """
    name = flag.names[0]
    is_typed = f"--{name}" in known.words
    has_no_value = flag.is_switch or is_typed
    if has_no_value and flag.off and flag.is_on and not flag.typed:  # on by default: `--no-amp` turns it off
        return SearchedFlag(flag=flag.off[0], values=(False, True), current=False, is_switch=True)
    if has_no_value and flag.parameter not in known.typed_settings:  # `--amp 1` has a value after all
        return SearchedFlag(flag=name, values=(False, True), current=is_typed, is_switch=True)
    return _with_other_values(flag)


def _with_other_values(flag: Flag) -> SearchedFlag | None:
    """Return a flag with its own value and a second one, or with its choices, four at most; None for any other flag.

    The second value is a mixed precision instead of a precision, or the opposite of on or off.
    """
    name, value = flag.names[0], flag.value
    if not value:
        return None
    pairs = (("True", "False"), ("true", "false"), ("1", "0"), ("on", "off"), ("yes", "no"))
    second = next((off if value == on else on for on, off in pairs if value in {on, off}), None)
    if Role.PRECISION.has(name):
        mixed = {"float32": "bfloat16", "fp32": "bf16", "32": "bf16-mixed", "32-true": "bf16-mixed", "no": "bf16"}
        of_choices = (choice for choice in flag.choices if re.search(r"bf16|bfloat16", choice))
        second = next(of_choices, mixed.get(value)) or second
    is_allowed = second is not None and (not flag.choices or second in flag.choices)
    values = tuple(dict.fromkeys((value, second) if second and is_allowed else (value, *flag.choices)))
    return SearchedFlag(flag=name, values=values, current=value) if 2 <= len(values) <= 4 else None


def balanced(known: Known, chosen: Sequence[SearchedFlag]) -> tuple[SearchedFlag, ...]:
    """Return the chosen flags, with a larger batch balanced by fewer batches a step, so that the same is learnt.

    A step of the optimizer adds up (accumulates) the gradients of several batches. A batch of 8 with 4 batches a step
    becomes 8, 16 or 32 with 4, 2 or 1: the flag of accumulation is computed. The flags are returned as they are:

    1. where no such pair of flags is known, or where the sizes of batches are free;
    2. where a person has named sizes that do not all divide the total batch;
    3. where larger batches may be added later, or the accumulation is searched, too.
    """
    flag = next((flag for flag in known.all_flags if Role.ACCUMULATION.has(flag.names[0])), None)
    batch = next((search for search in chosen if Role.BATCH.has(search.flag)), None)
    steps = (flag.number or 1) if flag else 1
    # 1
    if known.free_batch or known.has_batch_norm:
        return tuple(chosen)
    if flag is None or batch is None or not isinstance(batch.current, int) or steps < 2:
        return tuple(chosen)
    total = batch.current * steps
    sizes = batch.values
    is_named_by_person = batch.varies and not batch.is_balanced
    if not is_named_by_person:
        sizes = _sizes_of_total(batch.current, steps, known)
    # 2
    if not all(isinstance(size, int) and size > 0 and total % size == 0 for size in sizes):
        return tuple(chosen)
    # 3
    if batch.grows or any(search.parameter == flag.parameter for search in chosen):
        return tuple(chosen)
    computed = f"{total} / {{{batch.parameter}}}"  # the batches of a step, for each size
    accumulation = SearchedFlag(flag=flag.names[0], values=(steps,), current=steps, computed=computed)
    balanced_batch = replace(batch, values=sizes, is_balanced=True)
    return (*(balanced_batch if search is batch else search for search in chosen), accumulation)


def _sizes_of_total(batch: int, steps: int, known: Known) -> tuple[int, ...]:
    """Return the sizes that a batch may have if a step of the optimizer keeps its total, now `steps` batches.

    Some scripts divide the number of batches among their ranks. Then it must stay a multiple of the ranks: a batch of 8
    with 12 batches a step on 2 ranks may become 16 with 6, or 48 with 2.
    """
    data_ranks = known.training.data_ranks if known.training else 1
    is_divided = steps == data_ranks * known.micro_batches  # each rank was seen to take its share
    ranks = data_ranks if is_divided else 1
    total = batch * steps
    return tuple(size for size in balanced_sizes(batch, steps // ranks) if (total // size) % ranks == 0)


def balanced_sizes(batch: int, steps: int) -> tuple[int, ...]:
    """Return the batch, its doublings that divide the total of `steps` batches, and the total itself.

    For a batch of 8 and 12 steps, these are 8, 16, 32 and 96.
    """
    doublings = [batch << power for power in range(steps.bit_length()) if steps % (1 << power) == 0]
    return tuple(dict.fromkeys((*doublings, batch * steps)))


def no_proposal(known: Known) -> str:
    """Return in words that no flag is known to be worth a search, and how to name one."""
    typed = known.typed_settings.values()
    numbers = [setting for setting in typed if setting.value.isdecimal() and int(setting.value) > 0]
    example, named = "FLAG=VALUE,VALUE", "the command has no number; one inside the script cannot be varied"
    if numbers:
        example = f"{numbers[0].name}={numbers[0].value},{2 * int(numbers[0].value)}"
        named = f"numbers in the command: {', '.join(f'{setting.name}={setting.value}' for setting in numbers)}"
    return (
        "no flag of the command is known to be worth a search; name at least one, such as "
        f"{option('search')} {example} ({named})"
    )


def no_variation(kept_flags: Sequence[SearchedFlag], known: Known) -> str:
    """Return why nothing can be searched, and what would change that; `kept_flags` would change what is learnt."""
    kept = " and ".join(search.flag for search in kept_flags)
    free = f"{option('free_batch')} lets it vary"
    if any(search.is_precision for search in proposed(known)) and not known.free_precision:
        free += f", {option('free_precision')} lets the precision vary"
    data = "" if known.waits_for_data else "; no loader setting can gain more than 2 %"
    return (
        f"only {kept} could vary, and that changes what is learnt{data}; {free}, "
        f"and {option('search')} FLAG=VALUE,VALUE names other flags"
    )
