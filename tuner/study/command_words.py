"""Reads a typed command line: its variables, the program that it starts, and settings such as `--batch-size 32`."""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, dropwhile, pairwise, takewhile
from pathlib import Path, PurePath
from typing import NamedTuple

from tuner.count import Flag, as_parameter

LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch"}
"""The modules of torch that start ranks of a script."""

RANKS = ("nproc_per_node", "num_processes", "devices", "num_devices", "gpus", "num_gpus", "n_gpus", "ngpus")
"""The flags with a number of ranks."""
WORLD = "world_size"
"""A flag with the number of ranks or of machines. It is taken for that of ranks only if another flag says the same."""
TOTAL_RANKS = ("num_processes",)
"""Those of `RANKS` that count the ranks of all machines; the others count those of each machine."""
NODES = ("nnodes", "num_nodes", "num_machines")
"""The flags with the number of machines."""
PORTS = ("master_port", "main_process_port")
"""The flags with the port at which ranks meet."""

_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)
OVERRIDE = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
_BEFORE_PROGRAM = re.compile(
    r"(?:.*/)?(?:env|nice|ionice|nohup|time|timeout|setsid|stdbuf|taskset|numactl|chrt)|-.*|\w+=.*"
    r"|0x[\da-f]+|[\d.,:-]+[smhd]?"
)
"""The programs that start the rest of their words as a command, with their options, numbers and variables."""
_TAKES_A_WORD = re.compile("-[suC]|--signal|--unset|--chdir")
"""Their options whose value is a word, as in `timeout -s KILL 10` and `env -u HOME`."""


class SplitCommand(NamedTuple):
    """A command line such as `FOO=1 python train.py`."""

    env: dict[str, str]
    """The variables before its program."""
    words: Sequence[str]
    """The rest."""


def split_variables(words: Sequence[str]) -> SplitCommand:
    """Return a command line split into the environment variables before its program, and all other words.

    `FOO=1 python train.py` sets such a variable, and so does `env FOO=1 python train.py`.
    """
    env: dict[str, str] = {}
    for place, word in enumerate(words):
        if word == "env" and assigned_variables(words[place + 1 : place + 2]):
            continue
        if not (variable := assigned_variables([word])):
            return SplitCommand(env, words[place:])
        env |= variable
    return SplitCommand(env, ())


def assigned_variables(words: Iterable[str]) -> dict[str, str]:
    """Return the variables that words such as `FOO=1` set; other words set none."""
    assignment = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
    return {match["name"]: match["value"] for match in map(assignment.fullmatch, words) if match}


def script(words: Sequence[str]) -> str | None:
    """Return the path of the Python script that a command line names, by `-m` too; None where it names none."""
    place = program_place(words)
    if place is None:
        return None
    # `-m package.train` is package/train.py
    return words[place] if words[place].endswith(".py") else f"{words[place].replace('.', '/')}.py"


def program_place(words: Sequence[str]) -> int | None:
    """Return the position of the word that names a Python script or module; None where no word does.

    A script counts before a module. The modules of torch that start the ranks of a script do not count.
    """
    modules = (place for place in range(1, len(words)) if words[place - 1] == "-m" and words[place] not in LAUNCHERS)
    scripts = (place for place, word in enumerate(words) if word.endswith(".py"))
    return next(chain(scripts, modules), None)


def missing_script(words: Sequence[str], folder: Path) -> str | None:
    """Return the script that a command gives to Python, if it does not exist in `folder`; otherwise None.

    A script with a placeholder in its path is not checked, because only a config fills it.
    """
    place = program_place(words)
    is_python = re.fullmatch(r"python[\d.]*|torchrun", PurePath(words[0]).name) is not None
    if place is None or not is_python or {"-m", "-c", "--no-python", "--no_python"} & set(words[:place]):
        return None  # it starts a module, a text, or another program
    return words[place] if "{" not in words[place] and not (folder / words[place]).exists() else None


class Setting(NamedTuple):
    """A flag or option with its value in a command line, such as `--batch-size 32` or `lr=0.1`."""

    name: str
    """The flag's name as typed, without leading dashes."""
    value: str
    """The value as typed; `true` for a flag without a value."""
    word_index: int = -1
    """The index of the word that holds the value, or else the flag; -1 for a variable before the command."""
    full: str = ""
    """The long name of a flag that is typed in short, such as `workers` for `-j`; empty where it is unknown."""
    is_bare: bool = False
    """Whether the flag is typed without a value."""

    @property
    def parameter(self) -> str:
        """The name as a parameter of a study: `num-workers` and `trainer.num_workers` are `num_workers`."""
        return as_parameter(self.full or self.name)

    def is_called(self, flag: str) -> bool:
        """Return whether `flag` is a name of this setting: in full, or its last part, which `as_parameter` returns.

        Dashes and underscores are alike: `num_workers` is a name of `--data.num-workers`.
        """
        names = {self.full or self.name, self.name}
        spellings = {name.replace("-", "_") for name in names} | set(map(as_parameter, names))
        return flag.replace("-", "_") in spellings

    def word_with(self, value: str, words: Sequence[str]) -> str:
        """Return the word at `word_index` with another value: `--lr=2` for `--lr=1`, or just the value.

        `words` are those of the command. In place of a flag without a value, it is the value alone.
        """
        return value if self.is_bare else f"{words[self.word_index].removesuffix(self.value)}{value}"


def settings(
    words: Sequence[str], flags: Sequence[Flag] = (), names: Collection[str] = (), *, with_bare: bool = False
) -> list[Setting]:
    """Return the settings of a command line: `--name value`, `--name=value` and `name=value`.

    Args:
        words: the words of the command.
        flags: the flags of the script. They say which flag `-b` is, and that the word after a switch is no value. A
            flag whose value a later configuration file replaces is no setting.
        names: names that are settings even as two words without dashes behind the program, such as
            `data_num_workers 2`, unless the command has a flag of that name.
        with_bare: whether flags without a value are among the settings.
    """
    flag_of = {name: flag for flag in flags for name in flag.names}
    program = program_place(words) or 0
    typed: list[Setting] = []
    without_dashes: list[Setting] = []
    for place, word in enumerate(words):
        is_behind_program = place > program
        next_word = words[place + 1] if place + 1 < len(words) else None
        flag, override = _FLAG.fullmatch(word), OVERRIDE.fullmatch(word)
        in_script = flag_of.get(flag["name"]) if flag and is_behind_program else None
        full = in_script.names[0] if in_script else ""
        takes_any = not (in_script and in_script.is_switch)  # a switch takes true and false alone
        is_bool = next_word is not None and next_word.lower() in {"true", "false"}
        # a flag among the words that is not `typed`: a file behind it has replaced the value that the word says
        if in_script and in_script.is_read_in_order and not in_script.typed:
            continue
        if flag and flag["value"] is not None:  # `--name=value`
            typed.append(Setting(name=flag["name"], value=flag["value"], word_index=place, full=full))
        elif flag and next_word is not None and not is_flag(next_word) and (takes_any or is_bool):  # `--name value`
            typed.append(Setting(name=flag["name"], value=next_word, word_index=place + 1, full=full))
        elif flag and with_bare:
            typed.append(Setting(name=flag["name"], value="true", word_index=place, full=full, is_bare=True))
        elif override and place > 0:  # `name=value`; as the first word it would be a variable
            typed.append(Setting(name=override["name"], value=override["value"], word_index=place))
        elif word in names and is_behind_program and next_word is not None and not is_flag(next_word):  # `name value`
            without_dashes.append(Setting(name=word, value=next_word, word_index=place + 1))
    return typed + [pair for pair in without_dashes if not any(setting.is_called(pair.name) for setting in typed)]


def words_of_value(words: Sequence[str], setting: Setting, flags: Sequence[Flag]) -> list[str]:
    """Return the words of a setting's value: more than one for a flag with a list, as in `--hidden 64 64`.

    A flag has a list if the script has read it from the command line, and has no single value for it. `words` are those
    of the command, and `flags` those of the script.
    """
    is_list = any(flag.typed and flag.value is None for flag in flags if flag.parameter == setting.parameter)
    if not is_list or setting.word_index < 0:
        return [setting.value]
    return [setting.value, *takewhile(lambda word: not is_flag(word), words[setting.word_index + 1 :])]


def ranks(words: Sequence[str]) -> int | None:
    """Return the number of ranks on each machine that a command line asks for; None where no flag says it."""
    numbers = [setting for setting in settings(words) if setting.value.isdecimal()]
    for setting in numbers:
        count = int(setting.value)
        if setting.parameter in RANKS and count > 0:
            return max(1, count // nodes(words)) if setting.parameter in TOTAL_RANKS else count
    world_sizes = [int(setting.value) for setting in numbers if setting.parameter == WORLD]
    return next((size for size in world_sizes if size > 1), None)  # 1 is a usual default, and says nothing


def nodes(words: Sequence[str]) -> int:
    """Return the number of machines that a command line asks for; 1 where no flag says it."""
    texts = [setting.value for setting in settings(words) if setting.parameter in NODES]
    return next((int(text) for text in texts if text.isdecimal() and int(text) > 1), 1)


def is_flag(word: str) -> bool:
    """Return whether a word looks like a flag, such as `--workers` or `-b`, or is a placeholder for one."""
    return bool(re.match(r"--?[A-Za-z]|\{flag:", word))


def script_without_flags(words: Sequence[str]) -> str | None:
    """Return what a command starts that ignores flags behind it: a shell script, `bash -c`, or `make`.

    Programs such as `nice`, which start it, are passed over. Returns None for any other command, and for a script that
    cannot be read.
    """
    pairs = pairwise(["", *words])
    behind = dropwhile(lambda pair: _BEFORE_PROGRAM.fullmatch(pair[1]) or _TAKES_A_WORD.fullmatch(pair[0]), pairs)
    words = [word for _, word in behind] or words
    program, script = PurePath(words[0]).name, words[0]
    if program in {"make", "gmake"}:  # it takes variables alone: `make train WORKERS=2`
        return program
    arguments = [word for before, word in pairwise(words) if not re.fullmatch("-[a-z]*o", before)]  # `-o pipefail`
    options = takewhile(lambda word: word.startswith("-"), arguments)
    is_shell = program in {"sh", "bash", "zsh", "dash"}
    script = next((word for word in arguments if not word.startswith("-")), script) if is_shell else script
    is_inline = is_shell and any(re.fullmatch("-[a-z]*c", option) for option in options)  # `bash -ec '…'`
    if not (is_shell or PurePath(script).suffix == ".sh"):
        return None
    try:
        text = script if is_inline else Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    reads_flags = re.search(r"\$[@*#]|\$\{[@*#]|\bgetopts?\b|\bshift\b", text)
    return None if reads_flags else f"{program} -c" if is_inline else script
