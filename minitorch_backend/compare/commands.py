"""``minitorch compare`` and ``minitorch replay``; what the commands share."""

import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from minitorch_backend.compare.options import Options, parse_bytes, parse_steps

SCRIPT = click.Path(exists=True, dir_okay=False)
ARGUMENTS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback that turns ValueError and re.error into a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except (ValueError, re.error) as error:
            raise click.BadParameter(str(error)) from error

    return callback


def parse_keep(text: str) -> int:
    match = re.fullmatch(r"worst=(\d+)", text)
    if not match:
        raise ValueError(f"{text!r} is not of the form worst=N")
    return int(match[1])


def parse_device(text: str) -> str:
    """The name of a device that is there. Raises ValueError for anything else."""
    import torch

    try:
        kind = torch.device(text).type
    except RuntimeError as error:
        raise ValueError(f"torch knows no device {text!r}") from error
    if kind != "cpu" and not getattr(torch, kind, None):
        raise ValueError(f"{text} can hold no values here")
    if kind != "cpu" and not getattr(torch, kind).is_available():
        raise ValueError(f"there is no {kind} device on this machine")
    return text


def device_option(name: str, default: str, text: str) -> Callable[..., Any]:
    """An option of a command: a device that must be there."""
    return click.option(name, default=default, show_default=True, callback=parsed(parse_device), help=text)


@click.command(context_settings=ARGUMENTS)
@device_option("--subject", "minitorch", "Device of the script.")
@device_option("--reference", "cpu", "Device to hold it against.")
@click.option("-o", "--output", default="compare-report", show_default=True, type=click.Path(file_okay=False))
@click.option(
    "--every", default=1, show_default=True, type=click.IntRange(1), help="Take every n-th call of an operator."
)
@click.option("--only", callback=parsed(re.compile), help="Operators whose name matches this expression.")
@click.option("--modules", callback=parsed(re.compile), help="Calls in modules whose path matches this expression.")
@click.option("--steps", callback=parsed(parse_steps), help="Optimizer steps: 3, 3:7 (3 to 6) or 3:.")
@click.option("--keep", default="worst=200", show_default=True, callback=parsed(parse_keep), help="Calls to list.")
@click.option("--streaming", is_flag=True, help="No native shadow: less memory, local errors only.")
@click.option("--memory", callback=parsed(parse_bytes), help="Most memory of the shadow, for instance 2G.")
@click.option("--thorough", is_flag=True, help="Arbiter and second run for every call, not a choice of them.")
@click.argument("script", type=SCRIPT)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def compare(output: str, script: str, arguments: tuple[str, ...], streaming: bool, **settings: Any) -> None:
    """Run SCRIPT and hold each operator call on the subject device against the reference.

    These options stand before SCRIPT; what follows it is the script's. The script is not changed; it must run its model
    on the subject device. OUTPUT gets report.html, report.jsonl and a replay file for each finding, also when the
    script fails. Exit status: 0 nothing to report, 1 findings, 3 the script failed or nothing was compared.
    """
    from minitorch_backend.compare.report import write_data
    from minitorch_backend.compare.script import collect, run_child
    from minitorch_backend.compare.terminal import print_report

    folder = pathlib.Path(output)
    status = run_child(script, list(arguments), Options(shadow=not streaming, **settings), folder)
    data = collect(folder, status)
    if data is None:
        click.echo(f"Error: the script's process ended with status {status} before the comparison began", err=True)
        sys.exit(3)
    write_data(data, folder)
    print_report(data)
    click.echo(f"report: {folder / 'report.html'}")
    failed = status != 0 or not data["run"]["compared"]
    sys.exit(1 if data["findings"] else 3 if failed else 0)


@click.command(context_settings=ARGUMENTS)
@click.argument("file", type=SCRIPT)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def replay(file: str, arguments: tuple[str, ...]) -> None:
    """Run a replay FILE: [--subject DEVICE] [--reference DEVICE]. The same as running it with Python."""
    import runpy

    sys.argv = [file, *arguments]
    runpy.run_path(file, run_name="__main__")
