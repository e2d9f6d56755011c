"""Reads which flags a person wants searched, from options or from answers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from tuner.count import Flag, as_parameter
from tuner.drafting.command_lines import Setting
from tuner.drafting.searches import Known, Role, SearchedFlag, as_switch, balanced, no_proposal, proposed, with_sizes
from tuner.errors import StudyError, option
from tuner.study import LADDER, ParameterSpec, Value, complaints, doublings, named_files, value_text, values_or_null_in

SWITCH_VALUES = {"true", "false", "on", "off", "yes", "no"}
"""The values of a flag that is on or off."""


def searches(
    known: Known,
    asked: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
    ask: Callable[[str], str] | None = None,
    most: Callable[[SearchedFlag], int | None] = lambda _: None,
) -> tuple[SearchedFlag, ...]:
    """Return the flags to search: those that options name, or else those that are proposed, as a person changes them.

    Args:
        known: what is known of the command.
        asked: the options `--search`, such as `num_workers=0,2,4`.
        say: shows a line.
        ask: shows a question, and returns the line that a person types; None where nobody is asked. Then precision
            stays as it is, unless `known` allows it to vary: it may change what is learnt.
        most: returns the size up to which the values of a flag may grow during the search; None where they may not.

    Raises:
        StudyError: for an option that cannot be used, and where there is nothing to search.
    """
    if asked:
        chosen = [_search_of(text, known) for text in asked]
        names = [search.parameter for search in chosen]
        if twice := [name for name in names if names.count(name) > 1]:
            raise StudyError(f"{twice[0]} is searched more than once; list all its values together")
    elif ask:
        chosen = _chosen_by_person(known, say, ask, most)
    else:
        chosen = [search for search in proposed(known) if known.free_precision or not search.is_precision]
        if not chosen and not known.launch:  # a launch has a space of its own
            raise StudyError(no_proposal(known))
    return balanced(known, chosen)


def check_searches(asked: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` that is wrong whatever flags the script has: it needs no run to be refused."""
    for text in asked:
        flag, equals, values = _parts(text, known)
        is_name = re.fullmatch(r"[A-Za-z][\w./-]*|.+:[\w.-]+", flag)
        has_no_values = equals and not values.strip(", ")
        if not is_name or has_no_values:
            raise StudyError(f"{text}: write FLAG=8,16,32 or FLAG=8..1024")
        if ":" in flag:
            _check_file(text, flag, known.words)
        if values and ".." not in values:
            _named_values(flag, values)  # raises for a value that is wrong


class _Parts(NamedTuple):
    """The parts of a `--search`."""

    flag: str
    """The flag without leading dashes, or FILE:KEYS, such as `train.yaml:train.batch_size`."""
    equals: str
    """`=`; empty where no values are named."""
    values: str


def _parts(text: str, known: Known) -> _Parts:
    """Return the parts of a `--search`. The name of a file of the command may have an equals sign."""
    text = text.lstrip("-")
    file = next((name for name in named_files(known.words) if text.startswith(f"{name}:")), "")
    flag, equals, values = text.removeprefix(file).partition("=")
    return _Parts(file + flag, equals, values)


def _check_file(text: str, flag: str, words: Sequence[str]) -> None:
    """Raise StudyError for a `--search FILE:KEYS` whose file the command does not name, or has no value of these keys.

    A file that cannot be read is not judged: it may be relative to another folder.
    """
    file, _, keys = flag.rpartition(":")
    if file not in (named := named_files(words)):
        why = f"{file} is no YAML, TOML or JSON file that the command names; it names {', '.join(named) or 'none'}"
        raise StudyError(f"{text}: {why}")
    values = values_or_null_in(Path(file))
    if values and keys not in values:
        raise StudyError(f"{text}: {file} has no value {keys}; {_most_alike(keys, values) or 'see the file'}")
    if values and values[keys] is None:
        raise StudyError(f"{text}: {file} sets {keys} to null; write the value there that your training uses")


def _most_alike(name: str, names: Iterable[str]) -> str:
    """Return the question whether the user meant the known name that is most like theirs; empty where none is alike."""
    alike = get_close_matches(name, names, n=1)
    return f"did you mean {alike[0]}?" if alike else ""


def searches_with_placeholders(asked: Sequence[str], known: Known) -> list[SearchedFlag]:
    """Return the searched flags whose placeholders, such as `{lr}`, are typed: even the first run needs their values.

    Raises the errors of `check_searches`.
    """
    check_searches(asked, known)
    return [_search_of(text, known) for text in asked if _has_placeholder(known, _parts(text, known).flag)]


def _search_of(text: str, known: Known) -> SearchedFlag:
    """Return the flag and the values that a `--search` names.

    Its forms are `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` and `amp=true,false`.

    The value that the command has already is always among the values. Raises StudyError for a flag that the script does
    not have, and for values that it cannot have.
    """
    _, equals, values = _parts(text, known)
    flag, in_script, setting = _named_flag(text, known)
    # `batch_size`
    if not equals:
        return _with_usual_values(flag, setting, known)
    # `amp=true,false`, of a flag that the command has without a value or not at all
    if setting is None and {value.strip().lower() for value in values.split(",")} <= SWITCH_VALUES:
        as_in_script = as_switch(in_script, known) if in_script else None
        plain = SearchedFlag(flag=flag, values=(False, True), current=f"--{flag}" in known.words, is_switch=True)
        return as_in_script or plain
    current = _value_of_text(in_script.value) if in_script and in_script.value else None
    if setting:  # a typed placeholder is no value
        current = None if setting.value == f"{{{setting.parameter}}}" else _value_of_text(setting.value)
    # `num_envs=256..65536`
    if ".." in values:
        own_size = {current} if isinstance(current, int) and current > 0 else set[int]()
        sizes = tuple(sorted({*_doublings_between(flag, values), *own_size}))
        return SearchedFlag(flag=flag, values=sizes, current=current, auto=as_parameter(flag) == LADDER)
    # `num_workers=0,2,4`
    named = _named_values(flag, values)
    all_values = named if current is None or current in named else (current, *named)
    return SearchedFlag(flag=flag, values=all_values, current=current)


class _NamedFlag(NamedTuple):
    """The flag that a `--search` names."""

    flag: str
    """Its name as the script spells it, or else as the person does."""
    in_script: Flag | None
    """The script's own flag; None where the script is not known to have it, or the command has its placeholder."""
    setting: Setting | None
    """The value that the command gives it; None where the command does not name it."""


def _named_flag(text: str, known: Known) -> _NamedFlag:
    """Return the flag that a `--search` names, by its name, as the script has it, and as the command sets it.

    The name is spelled as in the script, or else as the person spells it. There is no flag of the script where it is
    not known to have it, or where the command has its placeholder. Raises StudyError for a flag that the script does
    not have.
    """
    flag = _parts(text, known).flag
    has_placeholder = _has_placeholder(known, flag)
    of_name = (option for option in known.flags if flag in option.names or as_parameter(flag) == option.parameter)
    in_script = None if has_placeholder else next(of_name, None)
    setting = known.setting(in_script.names[0] if in_script else flag)
    is_unknown = not (in_script or setting or has_placeholder)
    if is_unknown and known.knows_all:
        names = sorted({name for option in known.flags for name in (option.names[0], option.parameter)})
        read = f"{known.reader or 'no parser'} read: {', '.join(option.names[0] for option in known.flags) or 'none'}"
        variable = f"; for a variable, write {flag}=VALUE before the command" if flag.isupper() else ""
        raise StudyError(f"{text}: the script has no flag {flag}; {_most_alike(flag, names) or read}{variable}")
    return _NamedFlag(in_script.names[0] if in_script else flag, in_script, setting)


def check_names(asked: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` of a flag that the script does not have."""
    for text in asked:
        _named_flag(text, known)


def _with_usual_values(flag: str, setting: Setting | None, known: Known) -> SearchedFlag:
    """Return a flag that a `--search` names without values, with values around its number in the command.

    Raises StudyError where the command has no number for it.
    """
    names = {flag, as_parameter(flag)}
    for search in proposed(replace(known, free_batch=True)):  # a person who names a size frees it
        if search.parameter in names:
            return search
    if setting is None or not setting.value.isdecimal():
        raise StudyError(f"{flag}: the command has no number for it; write {flag}=8,16,32 or {flag}=8..1024")
    return with_sizes(Flag(names=(setting.full or setting.name,), value=setting.value), free=True)


def _doublings_between(flag: str, values: str) -> tuple[int, ...]:
    """Return the doublings between the bounds in a text such as `8..1024`. Raises StudyError for any other text."""
    bounds = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", values)
    if not bounds:
        raise StudyError(f"{flag}={values}: both bounds of FLAG=8..1024 are whole numbers; or list values, as 0.1,0.2")
    first, last = int(bounds[1]), int(bounds[2])
    if not 0 < first < last:
        raise StudyError(f"{flag}={values}: write the smaller bound first, and at least 1")
    return doublings(first, last)


def _has_placeholder(known: Known, flag: str) -> bool:
    """Return whether the command, or a variable before it, has a flag's placeholder."""
    return f"{{{as_parameter(flag)}}}" in " ".join((*known.env.values(), *known.words))


def _chosen_by_person(
    known: Known, say: Callable[[str], None], ask: Callable[[str], str], most: Callable[[SearchedFlag], int | None]
) -> list[SearchedFlag]:
    """Return the proposed flags as a person changes them, who is also asked whether the precision may vary.

    The question is asked again after an answer that cannot be used. `say`, `ask` and `most`: see `searches`.
    """
    by_name = {search.parameter: search for search in proposed(known)}
    shown = {name: search for name, search in by_name.items() if not search.is_precision}
    # what is proposed, without the precision
    if shown:
        for line in search_lines(balanced(known, list(shown.values())), free=known.free_batch, most=most):
            say(line)
        longest = max(shown.values(), key=lambda search: len(search.values))
        example = f"{longest.flag}={','.join(map(value_text, longest.values))}"
        question = f"Search these? [Enter = yes, or e.g. `{example}`; `FLAG=` leaves one out] "
    else:
        say(no_proposal(known))
        question = "Which flag? [e.g. `num-workers=0,4,8`] "
    chosen: dict[str, SearchedFlag] = {}
    while not chosen:
        try:
            chosen = _with_changes(shown, ask(question).split(), known)
        except StudyError as error:
            say(str(error))
    # the precision, which only a person may allow to vary
    precision = [search for name, search in by_name.items() if search.is_precision and name not in chosen]
    question = f"May the precision vary, too ({' '.join(map(str, precision))})? It may change what is learnt. [y/N] "
    if precision and ask(question).strip().lower() in {"y", "yes"}:
        chosen |= {search.parameter: search for search in precision}
    return list(chosen.values())


def _with_changes(shown: Mapping[str, SearchedFlag], texts: Sequence[str], known: Known) -> dict[str, SearchedFlag]:
    """Return parameter → its search after the changes that a person types: `FLAG=8,16` sets one, `FLAG=` removes one.

    Raises StudyError for a text that cannot be used, and where nothing is left.
    """
    left_out = {as_parameter(text.strip("-=")) for text in texts if text.endswith("=")}
    settings = [text for text in texts if not text.endswith("=")]
    if unknown := left_out - {as_parameter(search.flag) for search in shown.values()}:
        raise StudyError(f"{unknown.pop()}=: no such flag is proposed; write FLAG=8,16 or FLAG=, with spaces between")
    check_searches(settings, known)
    chosen = {name: search for name, search in shown.items() if as_parameter(search.flag) not in left_out}
    for text in settings:
        search = _search_of(text, known)
        chosen[search.parameter] = search
    if not chosen:
        raise StudyError(no_proposal(known))
    return chosen


def search_lines(
    searched: Sequence[SearchedFlag],
    *,
    free: bool,
    most: Callable[[SearchedFlag], int | None],
    precision: Sequence[SearchedFlag] = (),
) -> Iterator[str]:
    """Yield a line for each flag that is searched or kept, the command's own value first.

    Args:
        searched: the flags.
        free: whether sizes may vary that change what is learnt.
        most: returns the size up to which a flag's values grow; None where they do not.
        precision: flags of the precision that nobody was asked about, and that are left as they are.
    """
    for search in searched:
        remark = ""
        if search.computed:
            remark = "  (the total batch stays)"
        elif not search.varies and not free:
            remark = f"  (kept: others change what is learnt; {option('free_batch')} frees it)"
        elif search.changes_learning:
            remark = "  (changes what is learnt)"
        largest_size = most(search)
        growth = f", then more while it pays (to {largest_size})" if largest_size else ""
        yield f"  {search}{growth}{remark}"
    if precision:
        flags = " ".join(map(str, precision))
        free = option("free_precision")
        yield f"  precision is kept, because it may change training results; {free} searches it as well: {flags}"


def _value_of_text(text: str) -> Value:
    """Return the value that a text in the command stands for: a number, if a study can hold it, or else the text."""
    number = _number(text)
    return text if number is None or _complaint("", [number]) else number


def _named_values(flag: str, text: str) -> tuple[Value, ...]:
    """Return the values of a flag that a `--search` lists with commas between, each once.

    Raises StudyError for a value that the flag cannot have.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    values = tuple(dict.fromkeys(_value_of_word(flag, word) for word in words))
    if complaint := _complaint(flag, values):
        raise StudyError(complaint)
    return values


def _complaint(flag: str, values: Sequence[Value]) -> str | None:
    """Return why a study cannot hold the values of a flag; None where it can."""
    try:
        ParameterSpec.model_validate({"choices": values})
    except ValidationError as error:
        return complaints(error, ParameterSpec, flag)[0]
    return None


def _value_of_word(flag: str, word: str) -> Value:
    """Return the value of a flag that a word names: a number, or else the word itself.

    Raises StudyError for a word that is not a value of the flag, or is a number in a spelling that programs do not
    read: `50'000`, `050`, other digits, `inf`.
    """
    number = _number(word)
    shown = word if len(word) <= 60 else f"{word[:60]}…"
    is_size = any(role.has(flag) for role in (Role.WORKERS, Role.BATCH, Role.ENVIRONMENTS))
    least = 0 if Role.WORKERS.has(flag) else 1
    if is_size and (not isinstance(number, int) or number < least):
        raise StudyError(f"{flag}={shown}: write whole numbers of at least {least}, with commas between them")
    if not word.isprintable():
        raise StudyError(f"{flag}={shown!r} has control characters")
    other_spelling = r"[+-]?\d[\d'_\s]*(?:\.\d*)?|[+-]?(?:inf|infinity|nan)"
    if number is None and re.fullmatch(other_spelling, word, re.IGNORECASE):
        raise StudyError(f"{flag}={shown}: write numbers as 50000, 0.5 or 1e-4, with commas between them")
    return word if number is None else number


def _number(text: str) -> int | float | None:
    """Return a number that is written plainly, as `50`, `.5` or `1e-4`; None for any other text, also for `050`.

    Whole numbers of more than 300 digits become infinite.
    """
    if not re.fullmatch(r"[+-]?(?:0|[1-9][0-9]*|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", text):
        return None
    return int(text) if re.fullmatch("[+-]?[0-9]{1,300}", text) else float(text)
