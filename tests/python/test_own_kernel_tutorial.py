"""docs/own-kernel.md: every step compiles and is right, every Python piece runs."""

import pathlib
import re

import pytest
import torch

from minitorch_backend.bench import accuracy, case, kernel_race
from minitorch_backend.kernels import files

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "own-kernel.md"
BLOCKS = re.findall(r"```(cpp|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
STEPS = {re.match(r"// file: (\S+)", text).group(1): text for kind, text in BLOCKS if kind == "cpp"}
PYTHON = [text for kind, text in BLOCKS if kind == "python"]

pytestmark = pytest.mark.skipif(
    torch.minitorch.get_device_properties(0).backend != "cpu", reason="the sources are for the CPU"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))
    monkeypatch.chdir(tmp_path)
    for name, text in STEPS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_page_has_its_steps():
    assert list(STEPS) == [f"softmax{i}.cpp" for i in range(1, 5)] and len(PYTHON) == 2


@pytest.mark.parametrize("name", STEPS)
def test_step_is_right(folder, name):
    (mine,) = files.load(folder / name)
    generator = torch.Generator().manual_seed(0)
    for shape, dim in (
        ((33, 1024), -1),
        ((7, 32), -1),
        ((12, 40), 0),
        ((3, 5, 7), 1),
        ((4,), 0),
        ((), 0),
        ((0, 3), -1),
    ):
        x = 5 * torch.randn(shape, generator=generator)
        for view in (x, x.transpose(0, -1)) if x.dim() > 1 else (x,):
            with mine:
                found = view.to("minitorch").softmax(dim)
            native = view.softmax(dim)
            torch.testing.assert_close(found.cpu(), native)
            judged = accuracy.compare([native], [found.cpu()], [view.double().softmax(dim)])
            assert judged.verdict in ("ok", "less accurate")
    special = torch.tensor([[1.0, -torch.inf, 200.0], [-torch.inf, 0.0, 0.0], [torch.nan, 1.0, 2.0]])
    with mine:
        found = special.to("minitorch").softmax(-1).cpu()
    torch.testing.assert_close(found, special.softmax(-1), equal_nan=True)
    assert mine.calls >= 11


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_runs(number):
    exec(compile(PYTHON[number], f"{PAGE.name}:{number}", "exec"), {})


def test_the_race_finds_its_cases(folder):
    (mine,) = files.load(folder / "softmax4.cpp")
    chosen = kernel_race.choose([c for c in case.load() if "cpu" in c.backends], [mine], "")
    assert chosen and all("softmax" in c.full_name for c in chosen)
