"""The report as one HTML file that needs nothing else: data as JSON, a page that draws it."""

import importlib.resources
import json
import pathlib
from typing import Any

import jinja2

from minitorch_backend.compare.terminal import headline


def render_html(data: dict[str, Any]) -> str:
    """The page. What it embeds is bounded by what a Store keeps, not by the number of calls."""
    folder = importlib.resources.files("minitorch_backend.compare") / "templates"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((folder / "report.html.j2").read_text())
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return template.render(
        run=data["run"], headline=headline(data), clean=not data["findings"],
        style=(folder / "report.css").read_text(), script=(folder / "report.js").read_text(), data=embedded,
    )  # fmt: skip


def write_html(data: dict[str, Any], file: pathlib.Path) -> None:
    file.write_text(render_html(data), encoding="utf-8")
