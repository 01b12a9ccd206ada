"""Folders of benchmark cases that tests write."""

import pathlib
import textwrap


def write_cases(tmp_path: pathlib.Path, text: str, name: str = "tiny.py") -> pathlib.Path:
    """A folder of cases with one file; it has a folder of its own around it, for what is written beside it."""
    cases = tmp_path / "own" / "cases"
    cases.mkdir(parents=True)
    (cases / name).write_text(textwrap.dedent(text))
    return cases
