"""The table of a study's cases, on terminals of any width."""

from dataclasses import replace
from io import StringIO

from rich.console import Console
from tests_summary import BEST, summary

from tuner.cli.screen import plain_table, print_tables, spare_width, summary_table
from tuner.export.summary import CaseSummary


def test_a_best_with_several_measurements_says_so() -> None:
    rows = [summary(BEST), summary(replace(BEST, readings=3)), summary(replace(BEST, error=0.34)), summary(None)]
    table = summary_table(rows)
    assert table.columns[2].header == "best min_avg_util"
    assert list(table.columns[2].cells) == ["87.0", "87.0 (mean of 3)", "87.0 ± 0.3", ""]


def test_the_fastest_with_the_same_training_has_a_row_of_its_own() -> None:
    fast = replace(BEST, trial=9, value=60.0, config={"num_envs": 512}, samples_per_s=90_000.0)
    table = summary_table([replace(summary(BEST), fastest=fast)])
    best, second = zip(*(column.cells for column in table.columns), strict=True)
    assert second[1:7] == ("as default", "60.0", "num_envs=512", "90,000", "", "#9")
    assert second[0] == f"{best[0]}, fastest"


def test_the_whole_config_of_the_best_is_shown() -> None:
    table = summary_table([summary(BEST)])
    assert table.columns[3].header == "config"
    config = "num_envs=512 agent_variant=hiutil update_epochs=20"
    assert list(table.columns[3].cells) == [config]


def printed(width: int, *rows: CaseSummary) -> list[str]:
    console = Console(file=StringIO(), width=width, soft_wrap=True)
    with console.capture() as shown:
        print_tables(console, summary_table(rows))
    return shown.get().splitlines()


ROWS = [replace(summary(replace(BEST, error=0.4)), case="deepmimic_pi_plus_ppo", pruned=2), summary(None)]


def test_a_terminal_of_80_columns_shows_each_config_whole_below_the_table() -> None:
    assert [line.rstrip() for line in printed(80, *ROWS)] == [
        "case                   status  best min_avg_util  samples/s  gain  trial",
        "deepmimic_pi_plus_ppo  ok      87.0 ± 0.4         9,000            #3",
        "walk                   ok",
        "deepmimic_pi_plus_ppo: num_envs=512 agent_variant=hiutil update_epochs=20; 1 ok, 2 pruned",
        "walk: 1 ok",
    ]


def test_a_wide_terminal_shows_each_config_in_the_table() -> None:
    _, first, _ = printed(150, *ROWS)
    assert "  num_envs=512 agent_variant=hiutil update_epochs=20  " in first


def test_a_table_fits_where_no_word_is_broken() -> None:
    table = summary_table([summary(BEST)])
    assert spare_width(Console(width=200), table) > 0 > spare_width(Console(width=30), table)


def test_width_to_spare_goes_to_the_columns_from_the_left_and_breaks_no_word() -> None:
    left, right = "one two three four five six seven eight nine ten", "eleven twelve thirteen fourteen fifteen sixteen"
    console = Console(file=StringIO(), width=70, soft_wrap=True)
    with console.capture() as shown:
        table = plain_table("case", "left", "right")
        table.add_row("walk", left, right)
        print_tables(console, table)
    _, *lines = (line.rstrip() for line in shown.get().splitlines())
    assert lines[0] == f"walk  {left}  eleven twelve"
    assert [line.strip() for line in lines[1:]] == ["thirteen", "fourteen", "fifteen", "sixteen"]


def test_what_a_narrow_terminal_has_no_room_for_follows_below_the_table() -> None:
    assert [line.rstrip() for line in printed(50, *ROWS)] == [
        "case                   status  best min_avg_util",
        "deepmimic_pi_plus_ppo  ok      87.0 ± 0.4",
        "walk                   ok",
        "deepmimic_pi_plus_ppo: num_envs=512 agent_variant=hiutil update_epochs=20; 1 ok, 2 pruned; trial #3; "
        "samples/s 9,000",
        "walk: 1 ok",
    ]


def test_a_name_that_is_wider_than_the_terminal_is_cut_into_pieces() -> None:
    _, *pieces, _ = (line.split()[0] for line in printed(20, *ROWS)[:4])
    assert pieces == ["deepmimic_pi", "_plus_ppo"]


def test_trials_are_counted_by_what_became_of_them() -> None:
    table = summary_table(
        [summary(None), replace(summary(None), ok=0), replace(summary(None), failed=3, interrupted=2)]
    )
    assert list(table.columns[-1].cells) == ["1 ok", "", "1 ok, 3 failed, 2 interrupted"]
