"""Which flags of a command are worth a search, and over which values.

The name of a flag shows its role, such as the size of a batch. What was counted inside the training shows whether other
values can gain speed, or change what is learnt.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner.count import Flag, TrainingCounts, as_parameter
from tuner.errors import option
from tuner.study import Value, launches, value_text
from tuner.study.command_words import Setting, settings, words_of_value


class Role(StrEnum):
    """What a flag is for. The value is a regular expression for the names of such flags, in snake case."""

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
    """A setting of a loader's workers, without effect where a loader has none."""
    LEARNING = r".*(?:batch|epochs|num_steps|n_steps|rollout|horizon|accumul).*"
    """A number that probably changes what is learnt."""
    PRECISION = r"(?:use_|native_)?(?:amp|bf16|tf32|dtype|precision|mixed_precision|amp_dtype)|allow_tf32"
    SPEED = r"(?!no_).*(?:channels_last|(?:.*_)?compile(?:_model)?|pin_mem(?:ory)?|(?:.*_)?fused(?:_adamw?|_optim\w*)?)"
    """A switch that changes the speed and nothing that is learnt."""
    MEMORY = r".*(?:recompute|(?:activation|grad|gradient)_checkpoint|offload).*"
    """A switch that saves memory and costs time, so that turning it off may gain speed."""
    THREADS = r".*threads?|(?:num_|n_)?jobs"
    """A number of threads or processes that compute."""
    CARD = r".*(?:compile|pin_mem|tf32|fused).*"
    """A switch that helps on a GPU alone."""

    def has(self, flag: str) -> bool:
        """Return whether a flag has the role, by the last part of its name: `batchSize` of `model.batchSize`."""
        name = as_parameter(flag.removesuffix(".enable"))  # of `compile.enable`, only `compile` says something
        in_snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()  # `batch_size` for `batchSize`
        return re.fullmatch(self.value, in_snake_case) is not None


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
        return self.varies and not self.is_balanced and self.is_size

    @property
    def is_size(self) -> bool:
        """Whether other values of the flag, as of a batch, would probably change what is learnt."""
        return any(role.has(self.flag) for role in (Role.BATCH, Role.LEARNING, Role.ENVIRONMENTS))

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has the same number of samples with each value of the flag.

        A flag with several numbers may be a size, unless its name says that it is about speed, loading or precision.
        """
        if self.computed:  # it follows from a size that varies
            return False
        is_about_speed = Role.SPEED.has(self.flag) or Role.THREADS.has(self.flag)
        if not self.varies or self.is_precision or self.is_switch or self.is_of_loader or is_about_speed:
            return True
        has_numbers = any(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)
        return not has_numbers

    @property
    def is_of_loader(self) -> bool:
        """Whether the flag is about a loader's workers: it says how batches are loaded, and not what is in them."""
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
    """What the first run has shown of a command, and what its configs may change."""

    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables before the command."""
    cores: int
    """The CPU cores of a rank."""
    flags: Sequence[Flag] = ()
    """The flags of its script, each with the value that the run used."""
    reader: str = ""
    """What reads the flags, such as `argparse`; empty where this is unknown."""
    knows_all: bool = False
    """Whether the script has no other flags than `flags`."""
    training: TrainingCounts | None = None
    """What was counted inside the training; None where nothing was."""
    on_gpu: bool = False
    is_disturbed: bool = False
    """Whether other programs used the processors meanwhile. Steps then take longer, so that they wait less for data."""
    launch: str | None = None
    """The ready-made space that fits the flags. It has its own parameters, which are proposed nowhere else."""
    free_batch: bool = False
    """Whether sizes of batches may vary although they change what is learnt."""
    free_precision: bool = False
    """Whether the precision may vary, which may change what is learnt."""

    @property
    def typed_settings(self) -> dict[str, Setting]:
        """Parameter → its setting in the command line."""
        return {setting.parameter: setting for setting in settings(self.words, self.flags)}

    def setting(self, flag: str) -> Setting | None:
        """Return what sets a flag in the command: its last setting, or else a variable of its name; None if nothing."""
        named = [setting for setting in settings(self.words, self.flags, [flag]) if setting.is_called(flag)]
        if named:
            return named[-1]
        return Setting(name=flag, value=self.env[flag]) if flag in self.env else None

    @property
    def waits_for_data(self) -> bool:
        """Whether the training waits for data 2 % of its time or more, so that settings of the loader may gain speed.

        True also where this was not counted or other programs hid it, and False for a training without a loader.
        """
        if self.training is None or self.training.shares is None:
            return True
        has_loader = self.training.passes is not None
        return has_loader and (self.is_disturbed or self.training.shares.data >= 0.02)

    @property
    def waiting_in_words(self) -> str:
        """How much of its time the training waits for data; empty where that was not counted."""
        if self.training is None or self.training.shares is None:
            return ""
        if self.training.passes is None:
            return "the training uses no loader of torch"
        return f"the training waits for data {100 * self.training.shares.data:.1f} % of its time"

    @property
    def micro_batches(self) -> int:
        """The batches of each step of the optimizer on a rank; 1 where they were not counted."""
        return max(1, round((self.training and self.training.micro_batches) or 1))

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model normalises over a batch: then a smaller part of a batch would change what is learnt."""
        return bool(self.training and self.training.signature.normed)

    @property
    def all_flags(self) -> list[Flag]:
        """The flags of the command and its script, each with the value in use, without the parameters of `launch`."""
        of_script = {flag.parameter: flag for flag in self.flags}
        flags: list[Flag] = []
        for setting in self.typed_settings.values():
            typed = Flag(names=(setting.full or setting.name,), value=setting.value)
            # what the script says of the flag, with the name and the value as typed
            flags.append(replace(of_script.get(typed.parameter, typed), names=typed.names, value=typed.value))
        flags += [flag for flag in self.flags if flag.parameter not in self.typed_settings]
        decided = launches()[self.launch].parameters if self.launch else frozenset[str]()
        return [flag for flag in flags if flag.parameter not in decided]

    @property
    def workers(self) -> Flag | None:
        """The flag with the number of the loader's workers; None where no such flag has a number."""
        flags = (flag for flag in self.all_flags if Role.WORKERS.has(flag.names[0]) and flag.number is not None)
        return next(flags, None)


def proposed(known: Known) -> list[SearchedFlag]:
    """Return the flags that are worth a search, precision included, in the order in which a search tries them.

    A size that changes what is learnt is among them with its current value alone, unless `known.free_batch` is set.
    """
    # sizes, and the loader's workers
    searched = [_searched_size(flag, known) for flag in _flags_of_sizes(known)]
    workers = known.workers if known.waits_for_data else None
    if workers:
        searched.append(_searched_workers(workers, known.cores))
    # switches, and settings that have an effect only with workers
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
    """Return whether turning a switch on or off may gain speed, judged by its role and by what the run has shown."""
    name = flag.names[0]
    if Role.CARD.has(name) and not known.on_gpu:
        return False
    if Role.SPEED.has(name):
        return known.waits_for_data or "pin" not in name  # pinned memory helps loading alone
    return Role.PRECISION.has(name) or (flag.is_on and Role.MEMORY.has(name))


def _flags_of_sizes(known: Known) -> list[Flag]:
    """Return the flags with a size of batches, or a number of environments, that are worth a search.

    The first of three groups that is not empty is taken: typed flags with a usual name, typed flags that look like a
    batch, such as `frames_per_batch`, and the first flag of the script with a usual name. Where flags for a part of a
    batch are among them, such as a micro-batch, only these are returned, because the whole batch follows from them. A
    ready-made space (`known.launch`) has sizes of its own, so there are none.
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
    """Return the flag of a size with the values that are searched.

    A size varies if `known.free_batch` is set, because it changes what is learnt. It also varies where the optimizer
    adds up the gradients of several batches for each step: then a larger size with fewer batches learns the same,
    unless the model normalises over each batch.
    """
    batches = known.micro_batches
    is_batch_of_several = batches > 1 and not Role.ENVIRONMENTS.has(flag.names[0])
    if known.free_batch or not is_batch_of_several or known.has_batch_norm:
        return with_sizes(flag, free=known.free_batch)
    return replace(with_sizes(flag, free=False), values=balanced_sizes(flag.number or 1, batches), is_balanced=True)


def with_sizes(flag: Flag, *, free: bool) -> SearchedFlag:
    """Return the flag of a size: its current value alone, and if it is `free`, fractions and multiples of it, too."""
    current = flag.number or 0
    if not free:
        return SearchedFlag(flag=flag.names[0], values=(current,), current=current)
    is_batch = not Role.ENVIRONMENTS.has(flag.names[0])
    factors = (1 / 2, 1, 2, 4, 8) if is_batch else (1 / 4, 1 / 2, 1, 2, 4, 8, 16)
    values = tuple(dict.fromkeys(max(1, int(current * factor)) for factor in factors))
    return SearchedFlag(flag=flag.names[0], values=values, current=current, grows=True)


def _searched_workers(flag: Flag, cores: int) -> SearchedFlag:
    """Return the flag of the loader's workers with its current number, and usual numbers up to that of the cores."""
    current = flag.number or 0
    usual = [number for number in (0, 2, 4, 8, 16) if number <= max(cores, current, 2)]
    values = tuple(sorted({current, *usual}))
    # more workers than cores gain while they wait for data: 16 gained most on two cores where each record took 5 ms
    # (benchmarks/results/alternatives.md); each is a process, which takes memory and time to start (64 is chosen)
    most = min(8 * cores, 64)
    return SearchedFlag(flag=flag.names[0], values=values, current=current, grows=True, most=most)


def as_switch(flag: Flag, known: Known) -> SearchedFlag | None:
    """Return a flag of few values with all of them; None for any other flag.

    A switch such as `--amp` is in the command or not. A flag with a value, such as `--amp true`, has a second value or
    its choices: see `_with_second_value`.
    """
    name = flag.names[0]
    is_typed = f"--{name}" in known.words
    has_no_value = flag.is_switch or is_typed
    if has_no_value and flag.off and flag.is_on and not flag.typed:  # on by default: `--no-amp` turns it off
        return SearchedFlag(flag=flag.off[0], values=(False, True), current=False, is_switch=True)
    if has_no_value and flag.parameter not in known.typed_settings:  # `--amp 1` has a value after all
        return SearchedFlag(flag=name, values=(False, True), current=is_typed, is_switch=True)
    return _with_second_value(flag)


def _with_second_value(flag: Flag) -> SearchedFlag | None:
    """Return a flag with its own value and a second one, or with its choices; None where these are not 2 to 4 values.

    The second value is the opposite of on or off, or a mixed precision instead of the own precision.
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
    """Return the chosen flags, and a computed flag that keeps the total batch while the size of a batch varies.

    A step of the optimizer adds up (accumulates) the gradients of several batches. A batch of 8 with 4 batches a step
    may become 16 with 2 or 32 with 1, and learns the same. So the flag of accumulation is computed from the batch.

    The chosen flags are returned unchanged in three cases:

    1. No such pair of flags is known, or the sizes of batches need not keep their total.
    2. A person has named sizes that do not all divide the total batch.
    3. Larger batches may be added later, or the accumulation is searched, too.
    """
    flag = next((flag for flag in known.all_flags if Role.ACCUMULATION.has(flag.names[0])), None)
    batch = next((search for search in chosen if Role.BATCH.has(search.flag)), None)
    batches = (flag.number or 1) if flag else 1
    # 1
    needs_no_total = known.free_batch or known.has_batch_norm or batches < 2
    if needs_no_total or flag is None or batch is None or not isinstance(batch.current, int):
        return tuple(chosen)
    total = batch.current * batches
    sizes = batch.values
    is_named_by_person = batch.varies and not batch.is_balanced  # a proposed size varies only where it is balanced
    if not is_named_by_person:
        sizes = _balanced_sizes_of_ranks(batch.current, batches, known)
    # 2
    if not all(isinstance(size, int) and size > 0 and total % size == 0 for size in sizes):
        return tuple(chosen)
    # 3
    if batch.grows or any(search.parameter == flag.parameter for search in chosen):
        return tuple(chosen)
    computed = f"{total} / {{{batch.parameter}}}"  # the batches of a step, for each size
    accumulation = SearchedFlag(flag=flag.names[0], values=(batches,), current=batches, computed=computed)
    balanced_batch = replace(batch, values=sizes, is_balanced=True)
    return (*(balanced_batch if search is batch else search for search in chosen), accumulation)


def _balanced_sizes_of_ranks(batch_size: int, batches: int, known: Known) -> tuple[int, ...]:
    """Return the batch sizes that are possible if each step of the optimizer keeps its `batch_size * batches` samples.

    Some scripts divide the batches of a step among their ranks. Then their number must stay a multiple of the ranks: a
    batch of 8 with 12 batches a step on 2 ranks may become 16 with 6, or 48 with 2.
    """
    data_ranks = known.training.data_ranks if known.training else 1
    is_divided = batches == data_ranks * known.micro_batches  # each rank was seen to take its share
    ranks = data_ranks if is_divided else 1
    total = batch_size * batches
    return tuple(size for size in balanced_sizes(batch_size, batches // ranks) if (total // size) % ranks == 0)


def balanced_sizes(batch_size: int, batches: int) -> tuple[int, ...]:
    """Return batch sizes that divide `batch_size * batches`: doublings of `batch_size`, and that product itself.

    For a batch of 8 and 12 batches, these are 8, 16, 32 and 96.
    """
    doublings = [batch_size << power for power in range(batches.bit_length()) if batches % (1 << power) == 0]
    return tuple(dict.fromkeys((*doublings, batch_size * batches)))


def no_proposal(known: Known) -> str:
    """Return the message that no flag is known to be worth a search, with an example of naming one."""
    typed = known.typed_settings.values()
    single = [setting for setting in typed if len(words_of_value(known.words, setting, known.flags)) == 1]
    numbers = [setting for setting in single if setting.value.isdecimal() and int(setting.value) > 0]
    workers = next((flag for flag in known.flags if Role.WORKERS.has(flag.names[0]) and flag.value is None), None)
    variable = next((name for name, value in known.env.items() if Role.WORKERS.has(name) and value.isdecimal()), None)
    example = "FLAG=VALUE,VALUE"
    explanation = (
        "the command has no number; a variable that the script reads is named alike, as in NUM_WORKERS=0,2; for a "
        "number inside the script, let the script read one"
    )
    if workers and known.waits_for_data:
        example = f"{workers.names[0]}=0,2,4,8"
        explanation = "the script's own number of workers is unknown: list it first"
    elif variable:
        example, explanation = f"{variable}=0,2,4,8", f"{variable}={known.env[variable]} stands before the command"
    elif numbers:
        example = f"{numbers[0].name}={numbers[0].value},{2 * int(numbers[0].value)}"
        explanation = f"numbers in the command: {', '.join(f'{setting.name}={setting.value}' for setting in numbers)}"
    waiting = f"{known.waiting_in_words}; " if known.waiting_in_words else ""
    return (
        f"no flag of the command is known to be worth a search; {waiting}name at least one, such as "
        f"{option('search')} {example} ({explanation})"
    )


def unsearched_workers(known: Known) -> str:
    """Return the line that a flag for the loader's workers is not searched, and why; empty where none is left out."""
    if known.workers is None or known.waits_for_data:
        return ""
    return f"  {known.workers.names[0]} is not searched: {known.waiting_in_words}"


def no_variation(kept_flags: Sequence[SearchedFlag], known: Known) -> str:
    """Return the message that no flag may vary, and what would allow it.

    `kept_flags` keep their value, because other values would change what is learnt. `known`: what the first run of the
    command has shown.
    """
    kept = " and ".join(search.flag for search in kept_flags)
    free = f"{option('free_batch')} lets it vary"
    if any(search.is_precision for search in proposed(known)) and not known.free_precision:
        free += f", {option('free_precision')} lets the precision vary"
    waiting = f"; {known.waiting_in_words}" if known.waiting_in_words else ""
    return (
        f"only {kept} could vary, and that changes what is learnt{waiting}; {free}, "
        f"and {option('search')} FLAG=VALUE,VALUE names other flags"
    )
