"""The command ``minitorch``: every subcommand is listed and helps; info tells the truth about this process."""

import importlib.metadata
import re

import pytest
import torch
from click import shell_completion
from click.testing import CliRunner

import minitorch_backend
from minitorch_backend import cli, info


def run(*arguments):
    result = CliRunner().invoke(cli.main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_help_lists_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert all(name in result.output for name in cli.COMMANDS)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_helps(name):
    result = run(name, "-h")
    assert result.exit_code == 0 and f"main {name}" in result.output


def test_unknown_command_is_an_error():
    result = run("nonsense")
    assert result.exit_code == 2 and "No such command 'nonsense'" in result.output


def test_a_misspelt_command_has_near_matches():
    result = run("bnch")
    assert result.exit_code == 2 and "No such command 'bnch'. Near matches: bench." in result.output


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_an_interrupt_while_a_command_is_imported_is_one(name, monkeypatch):
    def interrupt(module):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupt)
    result = run(name)
    assert result.exit_code == 130 and result.output == "interrupted\n"


def test_version_needs_no_installation(monkeypatch):
    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    result = run("--version")
    assert result.exit_code == 0 and minitorch_backend.__version__ in result.output


def test_info():
    result = run("info")
    assert result.exit_code == 0 and torch.__version__ in result.output
    assert re.search(r"operators +\d{3,} with a kernel, \d{4,} composed of others, \d+ missing", result.output)


@pytest.mark.parametrize("columns", ["0", "1", "40", "none"])
def test_info_has_a_line_for_each_fact_in_any_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    lines = run("info").output.splitlines()
    assert [line.split("  ")[0] for line in lines] == list(info.facts())
    assert lines[-1].endswith("refused by design")


def test_shell_completion(monkeypatch):
    completion = shell_completion.get_completion_class("bash")(cli.main, {}, "minitorch", "_MINITORCH_COMPLETE")
    assert "_MINITORCH_COMPLETE=bash_complete" in completion.source()
    assert {c.value for c in completion.get_completions([], "")} == set(cli.COMMANDS)
    assert "matmul" in {c.value for c in completion.get_completions(["bench", "--only"], "mat")}
    assert {c.value for c in completion.get_completions(["bench", "--against"], "c")} == {"cpu", "cuda", "compile"}
