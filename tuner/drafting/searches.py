"""Which flags of a command are searched, over which values; asks a person where no option says so."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.drafting.command_lines import Setting, as_parameter, settings
from tuner.errors import StudyError
from tuner.study.space import LADDER, Value

ENVIRONMENTS = ("num_envs", "n_envs", "num_environments")
BATCHES = (
    "batch_size",
    "per_device_train_batch_size",
    "train_batch_size",
    "micro_batch_size",
    "per_gpu_batch_size",
    "batch",
    "bs",
    "b",
)
WORKERS = ("num_workers", "dataloader_num_workers", "n_workers", "workers", "j")
NEEDS_WORKERS = ("prefetch_factor", "dataloader_prefetch_factor", "persistent_workers")
_BATCH = re.compile(r"^(?!.*(?:val|test|num))(?:.*_)?(?:mini|micro)?batch(?:_|$)")
"""Another flag for a batch, such as `frames_per_batch`, where the command has no usual one."""
_LEARNING = re.compile(r"batch|epochs|num_steps|n_steps|rollout|horizon|accumul")
_WORKERS_TRIED = (0, 2, 4, 8, 16)
_LEAST_WORKERS = 2
_SWITCHED = {"true", "false", "on", "off", "yes", "no"}
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_CONFIG_FILE = re.compile(r"\.(?:ya?ml|json|toml|ini|cfg|gin)$")
_BOUNDS = re.compile(r"(\d{1,15})\.\.(\d{1,15})")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchedFlag:
    """One flag that is searched."""

    flag: str
    """The flag as the command or the user spells it, without leading dashes."""
    values: tuple[Value, ...]
    typed: Value | None
    """The value in the command; None where the command lacks the flag."""
    auto: bool = False
    """Whether the tuner makes the rungs between the first and the last value."""
    is_switch: bool = False
    """Whether the flag has no value: it is there or not."""

    @property
    def parameter(self) -> str:
        """The flag's name in the study; a switch keeps its spelling."""
        return self.flag if self.is_switch else as_parameter(self.flag)

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
    def changes_learning(self) -> bool:
        """Whether the flag probably changes what is learnt, and not throughput alone."""
        return self.parameter in BATCHES or bool(_LEARNING.search(self.parameter))


def searches(words: Sequence[str], asked: Sequence[str], cores_per_rank: int) -> tuple[SearchedFlag, ...]:
    """Return what the options ask for, or else the usual flags that the command has.

    Raises StudyError for an option of another form, and where there is nothing to search.
    """
    typed = {setting.parameter: setting for setting in settings(words)}
    if not asked:
        known = [setting for name, setting in typed.items() if name in (*ENVIRONMENTS, *BATCHES, *WORKERS)]
        usual = known or [setting for name, setting in typed.items() if _BATCH.match(name)]
        found = tuple(_usual(setting, cores_per_rank) for setting in usual if setting.value.isdecimal())
        if not found:
            raise StudyError(_nothing_known(list(typed.values())))
        return found
    found = tuple(_asked(text, words, typed, cores_per_rank) for text in asked)
    names = [search.parameter for search in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise StudyError(f"--search {twice[0]} is given more than once; write all its values in one option")
    return found


def _nothing_known(typed: Sequence[Setting]) -> str:
    """Return what to do about a command without a flag that is known to be worth a search."""
    numbers = [one for one in typed if one.value.isdecimal() and int(one.value) > 0]
    example = f"{numbers[0].name}={numbers[0].value},{2 * int(numbers[0].value)}" if numbers else "batch_size=32..512"
    named = ", ".join(f"{one.name}={one.value}" for one in numbers)
    said = (
        "no flag of the command is known to be worth a search; name at least one, such as "
        f"--search {example} (numbers in the command: {named or 'none'})"
    )
    file = next((one.value for one in typed if _CONFIG_FILE.search(one.value)), None)
    return f'{said}; values in {file}: see "A config file" in docs/trainers.md' if file else said


def _asked(text: str, words: Sequence[str], typed: Mapping[str, Setting], cores_per_rank: int) -> SearchedFlag:
    """Read `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` or, of a flag without a value, `amp=true,false`."""
    flag, equals, values = text.partition("=")
    flag = flag.lstrip("-")
    if not _NAME.fullmatch(flag) or (equals and not values.strip(", ")):
        raise StudyError(f"--search {text}: write FLAG=8,16,32 or FLAG=8..1024")
    setting = typed.get(as_parameter(flag))
    if not equals:
        if setting is None or not setting.value.isdecimal():
            raise StudyError(
                f"--search {text}: the command has no number for it; write {flag}=8,16,32 or {flag}=8..1024"
            )
        return _usual(setting, cores_per_rank)
    if setting is None and {value.strip().lower() for value in values.split(",")} <= _SWITCHED:
        return SearchedFlag(flag=flag, values=(False, True), typed=f"--{flag}" in words, is_switch=True)
    known = _value(setting.value) if setting and setting.value != f"{{{setting.parameter}}}" else None
    bounds = _BOUNDS.fullmatch(values)
    if bounds:
        first, last = int(bounds[1]), int(bounds[2])
        if not 0 < first < last:
            raise StudyError(f"--search {text}: write the smaller bound first, and at least 1")
        auto = as_parameter(flag) == LADDER
        return SearchedFlag(flag=flag, values=_doublings(first, last), typed=known, auto=auto)
    if ".." in values:
        raise StudyError(f"--search {text}: both bounds of FLAG=8..1024 are whole numbers; or list values, as 0.1,0.2")
    listed = tuple(dict.fromkeys(_value(value.strip()) for value in values.split(",") if value.strip()))
    return SearchedFlag(flag=flag, values=listed, typed=known)


def _usual(setting: Setting, cores_per_rank: int) -> SearchedFlag:
    """Return usual values around the typed value."""
    typed = int(setting.value)
    if setting.parameter in WORKERS:
        most = max(cores_per_rank, typed, _LEAST_WORKERS)
        values = sorted({typed, *(count for count in _WORKERS_TRIED if count <= most)})
    elif setting.parameter in ENVIRONMENTS:
        values = [max(1, typed // 4), max(1, typed // 2), *(typed * factor for factor in (1, 2, 4, 8, 16))]
    else:
        values = [max(1, typed // 2), *(typed * factor for factor in (1, 2, 4, 8))]
    return SearchedFlag(flag=setting.name, values=tuple(dict.fromkeys(values)), typed=typed)


def _doublings(first: int, last: int) -> tuple[int, ...]:
    values = [first]
    while 2 * values[-1] <= last:
        values.append(2 * values[-1])
    return (*values, *([last] if values[-1] < last else []))


def _value(text: str) -> Value:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


MOST_ANSWERS = 3
"""How many answers that cannot be used are asked again."""
_SHOWN = 6


def ask_searches(
    words: Sequence[str], cores_per_rank: int, *, say: Callable[[str], None], answer: Callable[[str], str]
) -> tuple[str, ...]:
    """Return what to search, as `searches` reads it; nothing where the person takes what is proposed.

    `answer` shows a prompt and returns the line that the person types. Raises StudyError after three answers that
    cannot be used.
    """
    numbers = [one for one in settings(words) if one.value.isdecimal()]
    say(f"numbers in the command: {', '.join(f'{one.name}={one.value}' for one in numbers) or 'none'}")
    proposed = _proposed(words, cores_per_rank)
    hint = f"Enter takes {proposed}" if proposed else "for example batch_size=32,64 num_envs=256..65536"
    for left in range(MOST_ANSWERS, 0, -1):
        asked = tuple(answer(f"Which flags shall be searched, over which values? ({hint}) ").split())
        try:
            searches(words, asked, cores_per_rank)
        except StudyError as error:
            if left == 1:
                raise
            say(str(error))
        else:
            return asked
    raise AssertionError("the last answer returns or raises")


def _proposed(words: Sequence[str], cores_per_rank: int) -> str:
    """Return the usual flags of the command with their values; empty where it has none."""
    try:
        usual = searches(words, (), cores_per_rank)
    except StudyError:
        return ""
    return " ".join(f"{one.flag}={','.join(map(str, one.values[:_SHOWN]))}" for one in usual)
