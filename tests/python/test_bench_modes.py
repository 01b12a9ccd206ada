"""Options of the benchmark that would do nothing together are refused, pair by pair."""

import pytest
from click import UsageError
from click.testing import CliRunner

from minitorch_backend.bench import modes
from minitorch_backend.bench.command import bench

# Each option with a value that is not its default's.
GIVEN = {
    "only": ["--only", "x"], "quick": ["--quick"], "thorough": ["--thorough"],
    "floors": ["--floors"], "resume": ["--resume"],
    "against": ["--against", "self"], "kernel": ["--kernel", __file__], "host": ["--host"], "list_only": ["--list"],
    "compare": ["--compare", __file__], "given": ["--results", __file__], "force": ["--force"], "check": ["--check"],
    "threads": ["--threads", "2"], "malloc": ["--malloc", "default"], "wait": ["--wait", "3"],
    "time_limit": ["--time-limit", "7"], "no_memory": ["--no-memory"], "json_path": ["--json", "x.jsonl"],
    "plots": ["--plots", "x"], "folder": ["--cases", "x"],
}  # fmt: skip
MODES = ("kernel", "host", "given", "list_only")
# What means something in each mode; all else is refused there.
MEANS = {
    "kernel": "only quick thorough resume threads malloc wait time_limit no_memory json_path folder",
    "host": "threads",
    "given": "only compare check plots",
    "list_only": "only quick floors folder",
}


def refusal(*names):
    given = [word for name in names for word in GIVEN[name]]
    try:
        modes.refuse_what_does_nothing(bench.params, bench.make_context("bench", given).params)
    except UsageError as error:
        return error.message
    return ""


def test_a_rough_look_is_not_thorough():
    assert refusal("quick", "thorough") == "--quick does not go with --thorough"
    assert not refusal("thorough", "only", "compare")


def test_every_option_is_here():
    assert set(GIVEN) == {p.name for p in bench.params} and set(MEANS) == set(modes.USED) == set(MODES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GIVEN)
def test_what_a_mode_does_not_use_is_refused(mode, name):
    if name == mode:
        assert refusal(mode) == ""
    elif name in MEANS[mode].split():
        assert refusal(mode, name) == ""
    else:
        said = refusal(mode, name)
        first, second = (name, mode) if name in MODES and MODES.index(name) < MODES.index(mode) else (mode, name)
        assert said.startswith("--force does nothing") or said == (
            f"{GIVEN[first][0]} does not go with {GIVEN[second][0]}"
        )


@pytest.mark.parametrize("name", sorted(set(GIVEN) - {*MODES, "force"}))
def test_a_race_uses_everything_else(name):
    assert refusal(name) == ""


def test_force_needs_an_older_run():
    assert refusal("force").startswith("--force does nothing without an older run")
    assert refusal("force", "compare") == refusal("given", "force", "compare") == ""
    GIVEN["older"] = ["--against", "old.jsonl"]
    try:
        assert refusal("force", "older") == ""
        assert refusal("compare", "older").startswith("--compare does not go with --against FILE.jsonl")
    finally:
        del GIVEN["older"]


def test_zero_is_a_value_too():
    found = CliRunner().invoke(bench, ["--host", "--wait", "0"])
    assert found.exit_code == 2 and "--host does not go with --wait" in found.output
    for mode in ("host", "given", "list_only"):  # which are in this process anyway
        params = bench.make_context("bench", [*GIVEN[mode], "--time-limit", "0"]).params
        modes.refuse_what_does_nothing(bench.params, params)
