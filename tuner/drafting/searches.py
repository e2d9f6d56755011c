"""Which flags of a command are searched, over which values; asks a person where no option says so."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tuner.count import Flag, TrainingCounts, as_parameter
from tuner.drafting.command_lines import Setting, settings
from tuner.errors import StudyError
from tuner.study import LADDER, Value, doublings, written

ENVIRONMENTS = ("num_envs", "n_envs", "num_environments")
BATCHES = (
    *("batch_size", "per_device_train_batch_size", "train_batch_size", "micro_batch_size", "per_gpu_batch_size"),
    *("batch", "bs", "b"),
)
WORKERS = ("num_workers", "dataloader_num_workers", "n_workers", "workers", "j")
NEEDS_WORKERS = ("prefetch_factor", "dataloader_prefetch_factor", "persistent_workers", "dataloader_persistent_workers")
_BATCH = re.compile(r"^(?!.*(?:val|test|num))(?:.*_)?(?:mini|micro)?batch(?:_|$)")
"""Another flag for a batch, such as `frames_per_batch`, where the command has no usual one."""
_ENVIRONMENTS = re.compile(r"^(?!.*(?:val|test|step))(?:num|n)_(?:.*_)?(?:env\w*|runners?)$|^training_num$")
"""Another number of environments, or of the processes that step them."""
ACCUMULATES = re.compile(r"^(?!eval|val).*accum")
"""A number of batches whose gradients are added up before a step of the optimizer."""
_LEARNING = re.compile(r"batch|epochs|num_steps|n_steps|rollout|horizon|accumul")
_PRECISION = re.compile(r"^(?:use_|native_)?(?:amp|bf16|tf32|dtype|precision|mixed_precision|amp_dtype)$|^allow_tf32$")
_SPEED = re.compile(
    r"^(?!no_).*(?:channels_last|(?:^|[_.])compile(?:_model|\.enable)?|pin_mem(?:ory)?|(?:^|_)fused(?:_adamw?|_optim\w*)?)$"
)
"""Switches that change the speed alone."""
_SAVES_MEMORY = re.compile(r"recompute|(?:activation|gradient)_checkpoint|offload")
"""Switches that save memory and cost time: worth a try where they are on."""
_DEGREE = re.compile(r"(?:tensor|pipeline)(?:_model)?_parallel(?:_size|_degree)?$|(?:tp|pp)(?:_size|_degree)?$")
"""How many ranks share a model's tensors or its layers."""
LEAST_WAIT = 0.02
"""Where a smaller share of the time waits for data, no loader setting is searched."""
_ON_CARDS = re.compile(r"compile|pin_mem|tf32|fused")
"""Switches that help on a GPU alone."""
_COARSE = {"float32": "bfloat16", "fp32": "bf16", "32": "bf16-mixed", "32-true": "bf16-mixed", "no": "bf16"}
"""A usual word for a precision → the word for a mixed one."""
_OPPOSITE = {"True": "False", "true": "false", "1": "0", "on": "off", "yes": "no"}
_OPPOSITE |= {no: yes for yes, no in _OPPOSITE.items()}
_PREFETCHED = (2, 4, 8)
_WORKERS_TRIED = (0, 2, 4, 8, 16)
_LEAST_WORKERS = 2
MOST_CHOICES = 4
"""A flag with more choices than so many is left as it is."""
_SWITCHED = {"true", "false", "on", "off", "yes", "no"}
_NAME = re.compile(r"[A-Za-z][\w./-]*(?::[\w.-]+)?")
_CONFIG_FILE = re.compile(r"\.(?:ya?ml|json|toml|ini|cfg|gin)$")
_BOUNDS = re.compile(r"(\d{1,15})\.\.(\d{1,15})")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchedFlag:
    """One flag that is searched, or that is computed from such flags."""

    flag: str
    """The flag as the command or the script spells it, without leading dashes."""
    values: tuple[Value, ...]
    typed: Value | None
    """The value in the command, or else the script's own default; None where nobody says it."""
    auto: bool = False
    """Whether the tuner makes the rungs between the first and the last value."""
    is_switch: bool = False
    """Whether the flag has no value: it is there or not."""
    computed: str = ""
    """The arithmetic of a flag that follows from another one; it is not searched itself."""
    grows: bool = False
    """Whether larger values may follow from what is watched: the values are not those of a person."""
    is_balanced: bool = False
    """Whether another flag follows this one, so that the total batch stays."""

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
        """What stands for the flag's value in the command, or for a switch itself."""
        return f"{{flag:{self.flag}}}" if self.is_switch else f"{{{self.parameter}}}"

    @property
    def first(self) -> Value:
        """The value with which the command is watched: the typed one, or else the first."""
        return self.values[0] if self.typed is None else self.typed

    @property
    def ordered(self) -> tuple[Value, ...]:
        """The values with the typed one first: a study takes the first value as the default."""
        return tuple(sorted(self.values, key=lambda value: value != self.typed))

    @property
    def varies(self) -> bool:
        """Whether it is searched over more than one value."""
        return len(self.values) > 1 and not self.computed

    @property
    def changes_learning(self) -> bool:
        """Whether the flag probably changes what is learnt, and not throughput alone."""
        named = self.parameter in BATCHES or bool(_LEARNING.search(self.parameter)) or _is_environments(self.parameter)
        return self.varies and named and not self.is_balanced

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has the same samples with each value. A number of an unknown flag may be a size."""
        if not self.varies or self.is_precision or self.is_switch:
            return not self.computed
        speeds = bool(_SPEED.search(self.flag.replace("-", "_")))
        sizes = (isinstance(one, int | float) and not isinstance(one, bool) for one in self.values)
        return speeds or self.is_of_loader or not any(sizes)

    @property
    def is_of_loader(self) -> bool:
        """Whether the flag says how batches are loaded, and not what is in them."""
        return self.parameter in {*WORKERS, *NEEDS_WORKERS}

    @property
    def is_precision(self) -> bool:
        """Whether the flag changes how numbers are rounded, which a person has to allow."""
        return bool(_PRECISION.search(as_parameter(self.flag)))

    def __str__(self) -> str:
        """Return the flag and its values as `--search` reads them."""
        if self.computed:
            return f"{self.flag} = {self.computed}"
        shown = (f"{self.values[0]}..{self.values[-1]}",) if self.auto else map(written, self.ordered)
        return f"{self.flag}={','.join(shown)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of a command once it has been watched."""

    words: Sequence[str]
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
    free_batch: bool = False
    """Whether sizes may vary that change what is learnt."""
    free_precision: bool = False
    """Whether the precision may vary, which may change what is learnt."""

    @property
    def typed(self) -> dict[str, Setting]:
        """Parameter → its setting in the command."""
        return {one.parameter: one for one in settings(self.words, self.flags)}

    @property
    def waits_for_data(self) -> bool:
        """Whether a loader setting may gain anything. True where nothing was counted."""
        shares = self.training.shares if self.training else None
        return shares is None or (
            self.training is not None and self.training.passes is not None and shares.data >= LEAST_WAIT
        )

    @property
    def micro_batches(self) -> int:
        """How many batches make a step of the optimizer, as far as they are counted."""
        return max(1, round((self.training and self.training.micro_batches) or 1))

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model takes means over a batch: then parts of a batch may not have other sizes."""
        return bool(self.training and self.training.signature.normed)

    @property
    def all(self) -> list[Flag]:
        """The flags of the command and of its script, each with the value that the command uses."""
        typed = [Flag(names=(one.full or one.name,), value=one.value) for one in self.typed.values()]
        named = {one.parameter for one in typed}
        listed = {one.parameter: one for one in self.flags}
        both = [replace(listed.get(one.parameter, one), names=one.names, value=one.value) for one in typed]
        return [*both, *(one for one in self.flags if one.parameter not in named)]


def searches(known: Known, asked: Sequence[str] = ()) -> tuple[SearchedFlag, ...]:
    """Return what the options ask for, or else what is proposed without a change of the precision.

    Raises StudyError for an option of another form, and where there is nothing to search.
    """
    if asked:
        found = [_asked(text, known) for text in asked]
        names = [search.parameter for search in found]
        if twice := [name for name in names if names.count(name) > 1]:
            raise StudyError(f"--search {twice[0]} is given more than once; write all its values in one option")
    elif not (found := [one for one in proposed(known) if known.free_precision or not one.is_precision]):
        raise StudyError(_nothing_known(known))
    return _balanced(known, found)


def proposed(known: Known) -> list[SearchedFlag]:
    """Return what is worth a search, precision included. Sizes that change what is learnt keep their values."""
    found = [_of_size(one, known) for one in _sizes(known) if one.number is not None]
    workers = next((one for one in known.all if one.parameter in WORKERS and one.number is not None), None)
    workers = workers if known.waits_for_data else None
    if workers:
        found.append(_workers(workers, known.cores))
    found += _degrees(known)
    for flag in known.all:
        name = flag.names[0].replace("-", "_")
        if _ON_CARDS.search(name) and not known.on_gpu:
            continue
        if _is_worth(flag, known) and (switched := _switched(flag, known)):
            found.append(switched)
        elif workers and flag.parameter in NEEDS_WORKERS:
            found += _of_loader(flag, known)
    return sorted(found, key=_turn)


def _is_worth(flag: Flag, known: Known) -> bool:
    """Return whether a switch is worth a search."""
    name = flag.names[0].replace("-", "_")
    if _SPEED.search(name):
        return known.waits_for_data or "pin_mem" not in name
    return bool(_PRECISION.search(flag.parameter)) or (flag.is_on and bool(_SAVES_MEMORY.search(name)))


def _turn(search: SearchedFlag) -> int:
    """Return when a flag has its turn, because a search tries the first flags first: what usually gains most, soonest.

    A model that is compiled starts late.
    """
    return 0 if search.is_precision else 2 if "compile" in search.parameter else 1


def _sizes(known: Known) -> list[Flag]:
    """Return the flags of batches and environments: typed ones, else the script's own. A part of a batch goes first."""
    typed = [one for one in known.all if one.parameter in known.typed]
    found = [one for one in typed if one.parameter in BATCHES or _is_environments(one.parameter)]
    found = found or [one for one in typed if _BATCH.match(one.parameter)]
    found = found or [one for one in known.all if one.parameter in BATCHES][:1]
    return [one for one in found if "micro" in one.parameter or "per_device" in one.parameter] or found


def _of_size(flag: Flag, known: Known) -> SearchedFlag:
    """Return a size as it is searched. A batch may vary where several batches make a step: then the step may stay."""
    steps = known.micro_batches
    if known.free_batch or _is_environments(flag.parameter) or steps <= 1 or known.has_batch_norm:
        return _size(flag, known.free_batch)
    return replace(_size(flag, free=False), values=balanced_sizes(flag.number or 1, steps), is_balanced=True)


def _degrees(known: Known) -> Iterator[SearchedFlag]:
    """Yield the degrees of parallelism, each over the divisors of the number of ranks."""
    ranks = known.training.ranks if known.training else 1
    divisors = tuple(degree for degree in range(1, ranks + 1) if ranks % degree == 0)
    for flag in known.all if ranks > 1 else ():
        if _DEGREE.match(flag.parameter) and flag.number in divisors:
            yield SearchedFlag(flag=flag.names[0], values=divisors, typed=flag.number)


def _size(flag: Flag, free: bool) -> SearchedFlag:
    typed = flag.number or 0
    factors = (1 / 4, 1 / 2, 1, 2, 4, 8, 16) if _is_environments(flag.parameter) else (1 / 2, 1, 2, 4, 8)
    values = tuple(dict.fromkeys(max(1, int(typed * factor)) for factor in factors))
    return SearchedFlag(flag=flag.names[0], values=values if free else (typed,), typed=typed, grows=free)


def _workers(flag: Flag, cores: int) -> SearchedFlag:
    typed = flag.number or 0
    most = max(cores, typed, _LEAST_WORKERS)
    values = sorted({typed, *(tried for tried in _WORKERS_TRIED if tried <= most)})
    return SearchedFlag(flag=flag.names[0], values=tuple(values), typed=typed, grows=True)


def _of_loader(flag: Flag, known: Known) -> Iterator[SearchedFlag]:
    if "persistent" in flag.parameter:
        if switched := _switched(flag, known):
            yield switched
    else:
        own = flag.number or _PREFETCHED[0]
        yield SearchedFlag(flag=flag.names[0], values=tuple(sorted({own, *_PREFETCHED})), typed=own)


def _switched(flag: Flag, known: Known) -> SearchedFlag | None:
    """Return a switch that is there or not, or a flag with its own value and the opposite; None for any other flag."""
    name, own = flag.names[0], flag.value or ""
    stands_alone = flag.is_switch or f"--{name}" in known.words
    if stands_alone and flag.off and flag.is_on and not flag.typed:
        return SearchedFlag(flag=flag.off[0], values=(False, True), typed=False, is_switch=True)
    if stands_alone and flag.parameter not in known.typed:
        return SearchedFlag(flag=name, values=(False, True), typed=f"--{name}" in known.words, is_switch=True)
    coarse = next((one for one in flag.choices if re.search(r"bf16|bfloat16", one)), _COARSE.get(own))
    other = (coarse if _PRECISION.search(flag.parameter) else None) or _OPPOSITE.get(own)
    if flag.choices and other not in flag.choices:
        values = tuple(dict.fromkeys((own, *flag.choices)))
        return SearchedFlag(flag=name, values=values, typed=own) if own and len(values) <= MOST_CHOICES else None
    return None if not own or other in {None, own} else SearchedFlag(flag=name, values=(own, str(other)), typed=own)


def _balanced(known: Known, found: Sequence[SearchedFlag]) -> tuple[SearchedFlag, ...]:
    """Return flags of which a batch may grow as far as a flag of accumulation shrinks, so that the total batch stays.

    Sizes that a person frees stay as they are, and so do named sizes that do not all divide the total batch.
    """
    flag = next((one for one in known.all if ACCUMULATES.match(one.parameter)), None)
    batch = next((one for one in found if one.parameter in BATCHES), None)
    steps = (flag.number or 1) if flag else 1
    if (
        known.free_batch
        or known.has_batch_norm
        or flag is None
        or batch is None
        or not isinstance(batch.typed, int)
        or steps < 2
    ):
        return tuple(found)
    total = batch.typed * steps
    sizes = batch.values if batch.varies else balanced_sizes(batch.typed, steps)
    ranks = (
        known.training.data_ranks if known.training and steps == known.training.data_ranks * known.micro_batches else 1
    )
    if not batch.varies or batch.is_balanced:
        sizes = tuple(size for size in balanced_sizes(batch.typed, steps // ranks) if (total // size) % ranks == 0)
    divide = all(isinstance(size, int) and size > 0 and total % size == 0 for size in sizes)
    if batch.grows or not divide or any(one.parameter == flag.parameter for one in found):
        return tuple(found)
    computed = f"{total} / {{{batch.parameter}}}"
    follows = SearchedFlag(flag=flag.names[0], values=(steps,), typed=steps, computed=computed)
    grown = replace(batch, values=sizes, is_balanced=True)
    return (*(grown if one is batch else one for one in found), follows)


def balanced_sizes(batch: int, steps: int) -> tuple[int, ...]:
    """Return the batch, its doublings that divide the total of `steps` batches, and the total itself."""
    doubled = (batch << power for power in range(steps.bit_length()) if steps % (1 << power) == 0)
    return tuple(dict.fromkeys((*doubled, batch * steps)))


def _is_environments(parameter: str) -> bool:
    return parameter in ENVIRONMENTS or bool(_ENVIRONMENTS.search(parameter))


def _nothing_known(known: Known) -> str:
    """Return what to do about a command without a flag that is known to be worth a search."""
    typed = list(known.typed.values())
    numbers = [one for one in typed if one.value.isdecimal() and int(one.value) > 0]
    example = f"{numbers[0].name}={numbers[0].value},{2 * int(numbers[0].value)}" if numbers else "batch_size=32..512"
    named = ", ".join(f"{one.name}={one.value}" for one in numbers)
    said = (
        "no flag of the command is known to be worth a search; name at least one, such as "
        f"--search {example} (numbers in the command: {named or 'none'})"
    )
    file = next((one.value for one in typed if _CONFIG_FILE.search(one.value)), None)
    return f'{said}; values in {file}: see "A config file" in docs/trainers.md' if file else said


def check(asked: Sequence[str]) -> None:
    """Raise StudyError for a `--search` of another form, before anything runs."""
    for text in asked:
        flag, equals, values = text.partition("=")
        if not _NAME.fullmatch(flag.lstrip("-")) or (equals and not values.strip(", ")):
            raise StudyError(f"--search {text}: write FLAG=8,16,32 or FLAG=8..1024")


def nothing_varies(found: Sequence[SearchedFlag], known: Known) -> str:
    """Return why nothing can be searched, and what would change that."""
    kept = " and ".join(search.flag for search in found)
    free = "--free-batch lets it vary"
    if any(one.is_precision for one in proposed(known)) and not known.free_precision:
        free += ", --free-precision lets the precision vary"
    data = "" if known.waits_for_data else "; no loader setting can gain more than 2 %"
    return (
        f"only {kept} could vary, and that changes what is learnt{data}; {free}, "
        "and --search FLAG=VALUE,VALUE names other flags"
    )


def _asked(text: str, known: Known) -> SearchedFlag:
    """Read `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` or, of a flag without a value, `amp=true,false`."""
    flag, equals, values = text.partition("=")
    flag = flag.lstrip("-")
    listed = next((one for one in known.flags if flag in one.names or as_parameter(flag) == one.parameter), None)
    if listed is None and known.knows_all and not _is_in(known.words, flag):
        names = ", ".join(sorted(one.names[0] for one in known.flags)) or "none"
        raise StudyError(f"--search {text}: the script has no flag {flag}; {known.reader or 'no parser'} read: {names}")
    setting = known.typed.get(listed.parameter if listed else as_parameter(flag))
    flag = listed.names[0] if listed else flag
    if not equals:
        free = replace(known, free_batch=True)
        if usual := next((one for one in proposed(free) if one.parameter in {flag, as_parameter(flag)}), None):
            return usual
        if setting is None or not setting.value.isdecimal():
            raise StudyError(
                f"--search {text}: the command has no number for it; write {flag}=8,16,32 or {flag}=8..1024"
            )
        return _size(Flag(names=(setting.full or setting.name,), value=setting.value), free=True)
    if setting is None and {value.strip().lower() for value in values.split(",")} <= _SWITCHED:
        plain = SearchedFlag(flag=flag, values=(False, True), typed=f"--{flag}" in known.words, is_switch=True)
        return (_switched(listed, known) if listed else None) or plain  # spelt as the script spells its own value
    own = _value(setting.value) if setting and setting.value != f"{{{setting.parameter}}}" else None
    if listed and not setting and listed.value:
        own = _value(listed.value)
    if bounds := _BOUNDS.fullmatch(values):
        first, last = int(bounds[1]), int(bounds[2])
        if not 0 < first < last:
            raise StudyError(f"--search {text}: write the smaller bound first, and at least 1")
        auto = as_parameter(flag) == LADDER
        return SearchedFlag(flag=flag, values=doublings(first, last), typed=own, auto=auto)
    if ".." in values:
        raise StudyError(f"--search {text}: both bounds of FLAG=8..1024 are whole numbers; or list values, as 0.1,0.2")
    named = tuple(dict.fromkeys(_value(value.strip()) for value in values.split(",") if value.strip()))
    return SearchedFlag(flag=flag, values=named if own is None or own in named else (own, *named), typed=own)


def _is_in(words: Sequence[str], flag: str) -> bool:
    """Return whether the command names a flag, or has its placeholder."""
    return f"{{{as_parameter(flag)}}}" in " ".join(words) or any(one.is_called(flag) for one in settings(words))


def _value(text: str) -> Value:
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


MOST_ANSWERS = 3
"""How many answers that cannot be used are asked again."""


def ask_searches(known: Known, *, say: Callable[[str], None], answer: Callable[[str], str]) -> tuple[SearchedFlag, ...]:
    """Return what to search: what is proposed, with the changes of a person who allows another precision or does not.

    `answer` shows a prompt and returns the line that the person types. Raises StudyError after three answers that
    cannot be used.
    """
    own = {one.parameter: one for one in proposed(known)}
    precision = {name: one for name, one in own.items() if one.is_precision}
    kept = {name: one for name, one in own.items() if not one.is_precision}
    for line in shown(_balanced(known, list(kept.values())), free=known.free_batch):
        say(line)
    if not kept:
        say(_nothing_known(known))
    how = "Enter takes these; with spaces between, FLAG=VALUE,VALUE adds or changes one, FLAG= leaves one out: "
    refused = 0
    while True:
        try:
            chosen = _changed(kept, answer(how if kept else "FLAG=VALUE,VALUE: ").split(), known)
            break
        except StudyError as error:
            refused += 1
            if refused == MOST_ANSWERS:
                raise
            say(str(error))
    rest = [one for name, one in precision.items() if name not in chosen]
    question = f"{' '.join(map(str, rest))}: may the precision vary, too? It may change what is learnt. [y/N] "
    if rest and answer(question).strip().lower() in _YES:
        chosen |= {one.parameter: one for one in rest}
    return _balanced(known, list(chosen.values()))


_YES = {"y", "yes"}


def _changed(kept: Mapping[str, SearchedFlag], texts: Sequence[str], known: Known) -> dict[str, SearchedFlag]:
    """Return the flags with the changes that a person types. Raises StudyError for what cannot be used."""
    left_out = {as_parameter(text.strip("-=")) for text in texts if text.endswith("=")}
    named = [_asked(text, known) for text in texts if not text.endswith("=")]
    chosen = {name: one for name, one in kept.items() if as_parameter(one.flag) not in left_out}
    chosen |= {one.parameter: one for one in named}
    if not chosen:
        raise StudyError(_nothing_known(known))
    return chosen


def shown(found: Sequence[SearchedFlag], *, free: bool) -> Iterator[str]:
    """Yield a line for each flag that is searched or kept, the command's own value first."""
    for one in found:
        why = ""
        if one.computed:
            why = "  (the total batch stays)"
        elif not one.varies and not free:
            why = "  (kept: other values change what is learnt; --free-batch frees it)"
        elif one.changes_learning:
            why = "  (changes what is learnt)"
        yield f"  {one}{why}"
