"""Chooses which flags of a command a study searches: by the options `--search`, or by what a person answers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from tuner.count import Flag, as_parameter
from tuner.drafting.searches import (
    Known,
    Role,
    SearchedFlag,
    as_switch,
    balanced,
    no_proposal,
    proposed,
    unsearched_workers,
    with_sizes,
)
from tuner.errors import StudyError, option
from tuner.study import LADDER, ParameterSpec, Value, complaints, doublings, named_files, value_text, values_or_null_in
from tuner.study.command_words import Setting, words_of_value
from tuner.study.space import read_number

GrowthLimit = Callable[[SearchedFlag], int | None]
"""Returns the size up to which a search may double the largest value of a flag; None where the values may not grow."""
SWITCH_VALUES = {"true", "false", "on", "off", "yes", "no"}
"""The values of a flag that is on or off."""


def flags_to_search(
    known: Known,
    options: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
    ask: Callable[[str], str] | None = None,
    growth_limit: GrowthLimit = lambda _: None,
) -> tuple[SearchedFlag, ...]:
    """Return the flags that a study searches, each with its values, and the flags that are computed from these.

    They are the flags that `options` name. Without options they are the proposed flags, which a person may change.

    Args:
        known: what is known of the command.
        options: the values of the options `--search`, such as `num_workers=0,2,4`.
        say: shows a line to the person.
        ask: shows a question, and returns the line that the person types; None where nobody is asked. Without a person,
            the precision varies only if `known` allows it, because it may change what is learnt.
        growth_limit: how far the values of a flag may grow during the search.

    Raises:
        StudyError: for an option that cannot be used, and where there is nothing to search.
    """
    if options:
        chosen = [_flag_of_option(text, known) for text in options]
        names = [search.parameter for search in chosen]
        if twice := [name for name in names if names.count(name) > 1]:
            raise StudyError(f"{twice[0]} is searched more than once; list all its values together")
    elif ask:
        chosen = _flags_by_person(known, say, ask, growth_limit)
    else:
        chosen = [search for search in proposed(known) if known.free_precision or not search.is_precision]
        if not chosen and not known.launch:  # a launch has a space of its own
            raise StudyError(no_proposal(known))
    has_workers = any(Role.WORKERS.has(search.flag) for search in chosen)  # a person may have added them
    if not options and not has_workers and (line := unsearched_workers(known)):
        say(line)
    return balanced(known, chosen)


def check_search_options(options: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` that is wrong in itself, such as one without values after its equals sign.

    This is checked before the first run. Whether the script has the flag is known only after it.
    """
    for text in options:
        flag, values = _split_option(text, known)
        is_name = re.fullmatch(r"[A-Za-z][\w./-]*|.+:[\w.-]+", flag)
        if not is_name or (values is not None and not values.strip(", ")):
            raise StudyError(f"{text}: write FLAG=8,16,32 or FLAG=8..1024")
        if ":" in flag:
            _check_file(text, flag, known.words)
        if values and ".." not in values:
            _named_values(flag, values)  # raises for a value that is wrong


class _SearchOption(NamedTuple):
    """The parts of one `--search`, such as `num_workers=0,2,4`."""

    flag: str
    """The flag without leading dashes, or FILE:KEYS, such as `train.yaml:train.batch_size`."""
    values: str | None
    """The values as typed, such as `0,2,4` or `8..1024`; None where the option names none."""


def _split_option(text: str, known: Known) -> _SearchOption:
    """Return the parts of a `--search`, split at the first equals sign that is not in the name of a file."""
    text = text.lstrip("-")
    file = next((name for name in named_files(known.words) if text.startswith(f"{name}:")), "")
    flag, equals, values = text.removeprefix(file).partition("=")
    return _SearchOption(file + flag, values if equals else None)


def _check_file(text: str, flag: str, words: Sequence[str]) -> None:
    """Raise StudyError for a `--search FILE:KEYS` where the command does not name the file, or the file lacks the keys.

    `text` is the option, `flag` its part FILE:KEYS, and `words` are the command. A file that cannot be read raises no
    error, because it may be relative to another folder.
    """
    file, _, keys = flag.rpartition(":")
    if file not in (named := named_files(words)):
        why = f"{file} is no YAML, TOML or JSON file that the command names; it names {', '.join(named) or 'none'}"
        raise StudyError(f"{text}: {why}")
    values = values_or_null_in(Path(file))
    if values and keys not in values:
        raise StudyError(f"{text}: {file} has no value {keys}; {_did_you_mean(keys, values) or 'see the file'}")
    if values and values[keys] is None:
        raise StudyError(f"{text}: {file} sets {keys} to null; write the value there that your training uses")


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `did you mean X?` for the one of `names` that is most like `name`; empty where none is close."""
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else ""


def flags_with_placeholders(options: Sequence[str], known: Known) -> list[SearchedFlag]:
    """Return the searched flags whose placeholders, such as `{lr}`, stand in the typed command.

    Even the first run needs a value in their place. Raises the errors of `check_search_options`.
    """
    check_search_options(options, known)
    return [
        _flag_of_option(text, known) for text in options if _has_placeholder(known, _split_option(text, known).flag)
    ]


def _flag_of_option(text: str, known: Known) -> SearchedFlag:
    """Return the flag that one `--search` names, with the values to search.

    The option has one of four forms: `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` or `amp=true,false`. The
    value that the command uses already is always among the values.

    Raises StudyError for a flag that the script does not have, and for values that the flag cannot have.
    """
    values = _split_option(text, known).values
    flag, in_script, setting = _named_flag(text, known)
    several = words_of_value(known.words, setting, known.flags) if setting and in_script else []
    if len(several) > 1:
        where = " ".join((f"--{flag}", f"{{{as_parameter(flag)}}}", *several[1:]))
        raise StudyError(
            f"{text}: {flag} has the values {' '.join(several)}; type a placeholder for one, as in {where}"
        )
    # `batch_size`
    if values is None:
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
    """The flag's name as the script spells it, or else as the person does."""
    in_script: Flag | None
    """The script's own flag; None where the script is not known to have it, or the command has its placeholder."""
    setting: Setting | None
    """The value that the command gives the flag; None where the command does not name it."""


def _named_flag(text: str, known: Known) -> _NamedFlag:
    """Return the flag that a `--search` names. Raises StudyError where the script is known not to have this flag."""
    flag = _split_option(text, known).flag
    has_placeholder = _has_placeholder(known, flag)
    is_in_file = ":" in flag  # a flag of that name is another thing
    of_name = (
        option
        for option in known.flags
        if flag in option.names or (not is_in_file and as_parameter(flag) == option.parameter)
    )
    in_script = None if has_placeholder else next(of_name, None)
    setting = known.setting(in_script.names[0] if in_script else flag)
    is_unknown = not (in_script or setting or has_placeholder)
    if is_unknown and known.knows_all:
        names = sorted({name for option in known.flags for name in (option.names[0], option.parameter)})
        read = f"{known.reader or 'no parser'} read: {', '.join(option.names[0] for option in known.flags) or 'none'}"
        # what else the person may mean: a variable of the shell, or a word such as `train.py fit 32`
        variable = f"for a variable that the script reads from its environment, write {flag}=VALUE before the command"
        way = variable if flag.isupper() else f"for a word without a flag, type {{{as_parameter(flag)}}} in its place"
        raise StudyError(f"{text}: the script has no flag {flag}; {_did_you_mean(flag, names) or f'{read}; {way}'}")
    return _NamedFlag(in_script.names[0] if in_script else flag, in_script, setting)


def check_flags_exist(options: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` of a flag that the script does not have."""
    for text in options:
        _named_flag(text, known)  # called for its error


def _with_usual_values(flag: str, setting: Setting | None, known: Known) -> SearchedFlag:
    """Return the flag of a `--search` without values: it gets the proposed values, or sizes around the typed number.

    Raises StudyError where neither is known.
    """
    names = {flag, as_parameter(flag)}
    for search in proposed(replace(known, free_batch=True)):  # who names the batch size lets it vary
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
    """Return whether the typed command, or a variable before it, has a flag's placeholder, such as `{lr}`."""
    return f"{{{as_parameter(flag)}}}" in " ".join((*known.env.values(), *known.words))


def _flags_by_person(
    known: Known, say: Callable[[str], None], ask: Callable[[str], str], growth_limit: GrowthLimit
) -> list[SearchedFlag]:
    """Show the proposed flags to a person, and return the flags that the answers choose.

    A first question is about all flags but the precision, and is repeated until its answer can be used. A second
    question asks whether the precision may vary. `say` shows a line, `ask` shows a question and returns the
    answer, and `growth_limit` returns how far the values of a flag may grow.
    """
    by_name = {search.parameter: search for search in proposed(known)}
    shown = {name: search for name, search in by_name.items() if not search.is_precision}
    # the first question
    if shown:
        proposals = balanced(known, list(shown.values()))
        for line in search_lines(proposals, free=known.free_batch, growth_limit=growth_limit):
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
    # the second question
    precision = [search for name, search in by_name.items() if search.is_precision and name not in chosen]
    question = f"May the precision vary, too ({' '.join(map(str, precision))})? It may change what is learnt. [y/N] "
    if precision and ask(question).strip().lower() in {"y", "yes"}:
        chosen |= {search.parameter: search for search in precision}
    return list(chosen.values())


def _with_changes(shown: Mapping[str, SearchedFlag], texts: Sequence[str], known: Known) -> dict[str, SearchedFlag]:
    """Return the flags to search by parameter: the `shown` flags after the changes that a person typed as `texts`.

    A text `FLAG=8,16` sets the values of a flag or adds it, and `FLAG=` removes it. Raises StudyError for a text that
    cannot be used, and where no flag is left.
    """
    left_out = {as_parameter(text.strip("-=")) for text in texts if text.endswith("=")}
    settings = [text for text in texts if not text.endswith("=")]
    if unknown := left_out - {as_parameter(search.flag) for search in shown.values()}:
        raise StudyError(f"{unknown.pop()}=: no such flag is proposed; write FLAG=8,16 or FLAG=, with spaces between")
    check_search_options(settings, known)
    chosen = {name: search for name, search in shown.items() if as_parameter(search.flag) not in left_out}
    for text in settings:
        search = _flag_of_option(text, known)
        chosen[search.parameter] = search
    if not chosen:
        raise StudyError(no_proposal(known))
    return chosen


def search_lines(
    searched: Sequence[SearchedFlag], *, free: bool, growth_limit: GrowthLimit, precision: Sequence[SearchedFlag] = ()
) -> Iterator[str]:
    """Yield a line for the person about each flag: its values, the command's own first, and what they change.

    Args:
        searched: the flags that vary, and those that keep their value because others would change what is learnt.
        free: whether sizes may vary that change what is learnt.
        growth_limit: how far the values of a flag may grow during the search.
        precision: flags of the precision that are not searched, because nobody has allowed it.
    """
    for search in searched:
        remark = ""
        if search.computed:
            remark = "  (the total batch stays)"
        elif not search.varies and search.is_size and not free:
            remark = f"  (kept: others change what is learnt; {option('free_batch')} frees it)"
        elif search.changes_learning:
            remark = "  (changes what is learnt)"
        elif search.varies and search.current is None:
            remark = "  (the script's own value is unknown: the first counts as yours)"
        limit = growth_limit(search)
        growth = f", then more while it pays (to {limit})" if limit else ""
        yield f"  {search}{growth}{remark}"
    if precision:
        flags = " ".join(map(str, precision))
        way = f"{option('free_precision')} searches it as well: {flags}"
        yield f"  precision is kept, because it may change training results; {way}"


def _value_of_text(text: str) -> Value:
    """Return the value that `text` has in the command: a number, if a study can hold it, or else the text."""
    number = read_number(text)
    return text if number is None or _why_no_choices("", [number]) else number


def _named_values(flag: str, text: str) -> tuple[Value, ...]:
    """Return the values of a flag that a `--search` lists, such as `8,16`, without repetitions.

    Raises StudyError for a value that the flag cannot have.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    values = tuple(dict.fromkeys(_value_of_word(flag, word) for word in words))
    if complaint := _why_no_choices(flag, values):
        raise StudyError(complaint)
    return values


def _why_no_choices(flag: str, values: Sequence[Value]) -> str | None:
    """Return why no study can have these values as the choices of a flag; None where it can."""
    try:
        ParameterSpec.model_validate({"choices": values})
    except ValidationError as error:
        return complaints(error, ParameterSpec, flag)[0]
    return None


def _value_of_word(flag: str, word: str) -> Value:
    """Return the value that a person typed as one word of a `--search`: a number, or else the word itself.

    Raises StudyError for a size that is no whole number, and for a number in a spelling that programs may not read:
    `50'000`, `050` or `inf`.
    """
    number = read_number(word)
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
