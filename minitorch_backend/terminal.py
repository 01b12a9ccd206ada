"""Tables and texts on the terminal, however narrow it is: no figure is cut off."""

import sys

from rich.console import Console
from rich.measure import Measurement, measure_renderables
from rich.table import Column, Table

NARROWEST = 110  # columns in which a table keeps all its figures; in fewer the terminal breaks the lines
REMARKS = 40  # of what stands behind the figures, before names are broken for it
LEAST = 40  # whatever the terminal calls itself
WIDTH = 140  # where there is no terminal


def console() -> Console:
    """Where everything is printed. Names and messages are shown as they are: what looks like markup is none.

    A stream that cannot show a character shows a question mark.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    made = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDTH)
    if made.width < LEAST:  # COLUMNS=0, and nothing would be printed
        made.width = LEAST
    return made


def show(console: Console, table: Table) -> None:
    """Print a table, in a narrow terminal wider than that: a broken line is better than figures that are cut off.

    Columns that say ``no_wrap`` stay whole. The first one gives way down to its ``min_width``, where it has one; the
    last one, unless it says so too, is broken for what stands before it.
    """
    unbounded = console.options.update(max_width=10_000)

    def longest(column: Column) -> int:
        return measure_renderables(console, unbounded, [column.header, *column.cells]).maximum

    for column in table.columns:  # that their text is not broken does not count where a table is measured
        if column.no_wrap:
            column.min_width = longest(column)
    needed, name, last = Measurement.get(console, unbounded, table), table.columns[0], table.columns[-1]
    remarks = measure_renderables(console, unbounded, [last.header, *last.cells])
    least, lacking = needed.minimum, needed.maximum
    if not last.no_wrap:  # marks and messages, of which a path may be longer than any line
        least -= max(0, remarks.minimum - REMARKS)
        lacking -= max(0, remarks.maximum - REMARKS)
    width = max(console.width, NARROWEST, least)
    if name.min_width and lacking > width:  # names give way: else what stands last is cut off for them
        name.width = max(name.min_width, longest(name) + width - lacking)
    if console.width < width:
        system = None if console.color_system is None else "auto"
        console = Console(  # without a height a dumb terminal would have 80 columns all the same
            file=console.file, width=width, height=console.height, highlight=False, markup=False, emoji=False,
            force_terminal=console.is_terminal, color_system=system, legacy_windows=False,
        )  # fmt: skip
    console.print(table)
