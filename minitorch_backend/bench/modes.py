"""Which options of ``minitorch bench`` go together: what would do nothing is refused, since it promises something."""

import pathlib
from collections.abc import Sequence

import click

# What the command does instead of an ordinary race, and the options that mean something there.
USED = {
    "kernel": {
        "only", "quick", "thorough", "resume", "threads", "malloc", "wait", "time_limit", "no_memory", "json_path",
        "folder",
    },
    "host": {"threads"},
    "given": {"only", "compare", "force", "check", "plots"},
    "list_only": {"only", "quick", "floors", "folder"},
}  # fmt: skip
UNWATCHED = ("host", "given", "list_only")  # all in this process, as --time-limit 0 asks for


def given_options(params: Sequence[click.Parameter], options: dict[str, object]) -> list[str]:
    """The names of those that are not as by default, in the order of the command's."""
    return [p.name for p in params if options[p.name] not in (None, p.default) and options[p.name] is not False]


def refuse_what_does_nothing(params: Sequence[click.Parameter], options: dict[str, object]) -> None:
    """Raises UsageError for options that do not go together."""
    spelt = {p.name: max(p.opts, key=len) for p in params}
    given = given_options(params, options)
    for mode, used in USED.items():
        if mode not in given:
            continue
        idle = [name for name in given if name != mode and name not in used]
        if mode in UNWATCHED and options["time_limit"] == 0 and "time_limit" in idle:
            idle.remove("time_limit")
        if idle:
            raise click.UsageError(f"{spelt[mode]} does not go with {', '.join(spelt[name] for name in idle)}")
        break
    if options["quick"] and options["thorough"]:
        raise click.UsageError("--quick does not go with --thorough")
    older = pathlib.Path(str(options["against"])).suffix == ".jsonl"
    if older and "compare" in given:
        raise click.UsageError("--compare does not go with --against FILE.jsonl: a run is held against one older run")
    if "force" in given and "compare" not in given and not older:
        raise click.UsageError("--force does nothing without an older run: --compare FILE or --against FILE.jsonl")
