"""The command ``minitorch``. Each subcommand is imported only when it is called, so that ``minitorch --help`` is quick.

A subcommand is a click command in a module of its own, named in ``COMMANDS``.
"""

import difflib
import importlib
import os
import sys
from typing import Any

import click

import minitorch_backend

# name: (module, attribute, the line that --help shows)
COMMANDS = {
    "bench": ("minitorch_backend.bench.command", "bench", "Race kernels and models against native torch."),
    "compare": ("minitorch_backend.compare.commands", "compare", "Hold each operator call of a script against native."),
    "culprit": ("minitorch_backend.compare.culprit", "culprit", "Find the operators that make a check of yours fail."),
    "info": ("minitorch_backend.info", "info", "Backend, devices, versions, memory, operators."),
    "replay": ("minitorch_backend.compare.commands", "replay", "Run a call that compare found, from its file."),
    "shrink": ("minitorch_backend.compare.shrink", "shrink", "Make a replay file smaller while its verdict holds."),
}


INTERRUPTED = 130  # exit status, as shells have it
ABOUT_THE_DEVICE = ("bench", "info")


class LazyGroup(click.Group):
    """A group whose commands come from ``COMMANDS``; the pattern is the one in click's documentation."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the caller
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # such as output to a disk that is full
            click.echo(f"Error: {error}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # also while a command is imported
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in ABOUT_THE_DEVICE and os.environ.get("MINITORCH_BACKEND") == "none":
            raise click.ClickException(f"{cmd_name} needs the device, which MINITORCH_BACKEND=none leaves out")
        module, attribute, _ = COMMANDS[cmd_name]
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if close := difflib.get_close_matches(args[0], COMMANDS):
                error.message += f" Near matches: {', '.join(close)}."
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(minitorch_backend.__version__, prog_name="minitorch")
def main() -> None:
    """minitorch: run PyTorch code on a device written from nothing, diff it against native torch, race its kernels.

    Shell completion: eval "$(_MINITORCH_COMPLETE=bash_source minitorch)", likewise zsh_source and fish_source.
    """
