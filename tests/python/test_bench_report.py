"""What a person reads of a race: figures in their units, and tables that lose none of them."""

import io

import pytest
from rich.console import Console

from minitorch_backend import terminal
from minitorch_backend.bench import kernel_race, report
from minitorch_backend.bench.results import Result

WIDTHS = (40, 80, 110, 120, 140, 160, 300)


def shown(table, width):
    console = Console(width=width, file=io.StringIO(), markup=False, highlight=False, emoji=False)
    terminal.show(console, table)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (report.seconds(0.9994), "999 ms"), (report.seconds(0.9996), "1 s"), (report.seconds(12345.0), "12345 s"),
        (report.seconds(999.96e-6), "1 ms"), (report.seconds(3e-9), "3 ns"), (report.seconds(None), "–"),
        (report.size(1010 * 1024), "1010 KiB"), (report.size(2**20 - 1), "1 MiB"), (report.size(3 * 2**40), "3072 GiB"),
        (report.size(0), "0 B"), (report.size(1023), "1023 B"),
        (report.rate(999.9e9, "FLOP/s"), "1 TFLOP/s"), (report.rate(5.24e5, "FLOP"), "524 kFLOP"),
        (report.rate(64.0, "FLOP"), "64 FLOP"), (report.rate(5e15, "FLOP/s"), "5000 TFLOP/s"),
    ],
)  # fmt: skip
def test_figures_have_no_exponent(made, expected):
    assert made == expected


@pytest.fixture
def result():
    seconds = {"cpu": 62.7e-6, "minitorch": 961e-6, "a_kernel_of_mine": 654e-6}
    peak = dict(zip(seconds, (16 << 20, 1023 << 20, 128.1 * 2**20), strict=True))
    return Result(
        "pooling/adaptive_avg_pool2d fwd+bwd 32x256x56x56 f32 channels_last", "pooling", rival="cpu", seconds=seconds,
        ratio=2.22, low=0.01, high=585.39, others={"minitorch": [5.51, 0.42, 172.32]}, share=0.98, bound="arithmetic",
        peak=peak, status="less accurate",
    )  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut_off_in_a_race_of_three(result, width):
    text = shown(kernel_race.table([result], "cpu", "a_kernel_of_mine"), width)
    figures = [report.seconds(s) for s in result.seconds.values()] + [report.size(p) for p in result.peak.values()]
    for figure in (*figures, "2.22 (0.01 – 585.39)", "5.51 (0.42 – 172.32)", "98% arithmetic", "a_kernel_of_mine"):
        assert figure in text, figure


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut_off_in_a_race_of_two(result, width):
    failed = Result("f/broken", "f", rival="cpu", status="failed", message=f"OSError: {'/folder' * 60}/the_end")
    text = shown(report.table([result, failed], "cpu", ours="a_kernel_of_mine"), width)
    assert max(map(len, text.splitlines())) <= max(width, 160) and "the_end" in "".join(text.split())
    for figure in ("62.7 µs", "654 µs", "2.22", "0.01 – 585.39", "98%", "arithmetic", "less", "accurate"):
        assert figure in text, figure


def test_a_terminal_without_columns_shows_a_text(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "0")
    console = terminal.console()
    console.print("failed: f/a")
    assert console.file.getvalue() == "failed: f/a\n"
