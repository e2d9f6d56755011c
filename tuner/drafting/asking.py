"""Reads which flags a person wants searched, from options or from answers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.count import Flag, as_parameter
from tuner.drafting.named_values import named_values, typed_value
from tuner.drafting.searches import Known, SearchedFlag, balanced, nothing_known, proposed, sized, switched
from tuner.errors import StudyError
from tuner.study import LADDER, doublings


def searches(known: Known, asked: Sequence[str] = ()) -> tuple[SearchedFlag, ...]:
    """Return what the options ask for, or else what is proposed without a change of the precision.

    Raises StudyError for an option of another form, and where there is nothing to search.
    """
    if asked:
        chosen = [_asked(text, known) for text in asked]
        names = [search.parameter for search in chosen]
        if twice := [name for name in names if names.count(name) > 1]:
            raise StudyError(f"--search {twice[0]} is given more than once; write all its values in one option")
    elif not (chosen := [search for search in proposed(known) if known.free_precision or not search.is_precision]):
        raise StudyError(nothing_known(known))
    return balanced(known, chosen)


def check(asked: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` that no study of a command can hold, before anything runs."""
    for text in asked:
        flag, equals, values = text.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w./-]*(?::[\w.-]+)?", flag.lstrip("-")) or (equals and not values.strip(", ")):
            raise StudyError(f"--search {text}: write FLAG=8,16,32 or FLAG=8..1024")
        if values and ".." not in values:
            setting = known.setting(flag.lstrip("-"))
            named_values(flag.lstrip("-"), values, setting and typed_value(setting.value))


def placed(asked: Sequence[str], known: Known) -> Iterator[SearchedFlag]:
    """Yield the searches whose placeholders are typed in the command: even its first run needs a value for them."""
    for text in asked:
        if _has_placeholder(known, text.partition("=")[0].lstrip("-")):
            yield _asked(text, known)


def _asked(text: str, known: Known) -> SearchedFlag:
    """Read `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` or, of a flag without a value, `amp=true,false`."""
    flag, equals, values = text.partition("=")
    flag = flag.lstrip("-")
    listed = next((own for own in known.flags if flag in own.names or as_parameter(flag) == own.parameter), None)
    has_placeholder = _has_placeholder(known, flag)
    listed = None if has_placeholder else listed
    setting = known.setting(listed.names[0] if listed else flag)
    if listed is None and known.knows_all and not setting and not has_placeholder:
        names = ", ".join(sorted(own.names[0] for own in known.flags)) or "none"
        raise StudyError(f"--search {text}: the script has no flag {flag}; {known.reader or 'no parser'} read: {names}")
    flag = listed.names[0] if listed else flag
    if not equals:
        free = replace(known, free_batch=True)
        names = {flag, as_parameter(flag)}
        if usual := next((search for search in proposed(free) if search.parameter in names), None):
            return usual
        if setting is None or not setting.value.isdecimal():
            raise StudyError(
                f"--search {text}: the command has no number for it; write {flag}=8,16,32 or {flag}=8..1024"
            )
        return sized(Flag(names=(setting.full or setting.name,), value=setting.value), free=True)
    words = {"true", "false", "on", "off", "yes", "no"}
    if setting is None and {value.strip().lower() for value in values.split(",")} <= words:
        plain = SearchedFlag(flag=flag, values=(False, True), typed=f"--{flag}" in known.words, is_switch=True)
        return (switched(listed, known) if listed else None) or plain  # spelt as the script spells its own value
    own = typed_value(setting.value) if setting and setting.value != f"{{{setting.parameter}}}" else None
    if listed and not setting and listed.value:
        own = typed_value(listed.value)
    if bounds := re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", values):
        first, last = int(bounds[1]), int(bounds[2])
        if not 0 < first < last:
            raise StudyError(f"--search {text}: write the smaller bound first, and at least 1")
        auto = as_parameter(flag) == LADDER
        return SearchedFlag(flag=flag, values=doublings(first, last), typed=own, auto=auto)
    if ".." in values:
        raise StudyError(f"--search {text}: both bounds of FLAG=8..1024 are whole numbers; or list values, as 0.1,0.2")
    named = named_values(flag, values, own)
    return SearchedFlag(flag=flag, values=named if own is None or own in named else (own, *named), typed=own)


def _has_placeholder(known: Known, flag: str) -> bool:
    """Return whether the command, or a variable before it, has a flag's placeholder."""
    return f"{{{as_parameter(flag)}}}" in " ".join((*known.env.values(), *known.words))


def ask_searches(known: Known, *, say: Callable[[str], None], ask: Callable[[str], str]) -> tuple[SearchedFlag, ...]:
    """Return what to search: what is proposed, with the changes of a person who allows another precision or does not.

    `ask` shows a question and returns the line that the person types. What cannot be used is asked again.
    """
    own = {search.parameter: search for search in proposed(known)}
    precision = {name: search for name, search in own.items() if search.is_precision}
    kept = {name: search for name, search in own.items() if not search.is_precision}
    lines = shown(balanced(known, list(kept.values())), free=known.free_batch)
    for line in lines if kept else [nothing_known(known)]:
        say(line)
    how = "Enter takes these; with spaces between, FLAG=VALUE,VALUE adds or changes one, FLAG= leaves one out: "
    chosen: dict[str, SearchedFlag] = {}
    while not chosen:
        try:
            chosen = _changed(kept, ask(how if kept else "FLAG=VALUE,VALUE: ").split(), known)
        except StudyError as error:
            say(str(error))
    left = [search for name, search in precision.items() if name not in chosen]
    question = f"{' '.join(map(str, left))}: may the precision vary, too? It may change what is learnt. [y/N] "
    if left and ask(question).strip().lower() in {"y", "yes"}:
        chosen |= {search.parameter: search for search in left}
    return balanced(known, list(chosen.values()))


def _changed(kept: Mapping[str, SearchedFlag], texts: Sequence[str], known: Known) -> dict[str, SearchedFlag]:
    """Return the flags with the changes that a person types. Raises StudyError for what cannot be used."""
    left_out = {as_parameter(text.strip("-=")) for text in texts if text.endswith("=")}
    check([text for text in texts if not text.endswith("=")], known)
    named = [_asked(text, known) for text in texts if not text.endswith("=")]
    chosen = {name: search for name, search in kept.items() if as_parameter(search.flag) not in left_out}
    chosen |= {search.parameter: search for search in named}
    if not chosen:
        raise StudyError(nothing_known(known))
    return chosen


def shown(searched: Sequence[SearchedFlag], *, free: bool) -> Iterator[str]:
    """Yield a line for each flag that is searched or kept, the command's own value first."""
    for search in searched:
        why = ""
        if search.computed:
            why = "  (the total batch stays)"
        elif not search.varies and not free:
            why = "  (kept: other values change what is learnt; --free-batch frees it)"
        elif search.changes_learning:
            why = "  (changes what is learnt)"
        yield f"  {search}{why}"
