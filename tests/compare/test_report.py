"""The store's bounds and the report's files; the HTML page in a real browser."""

import io
import json
import random
import re
import shutil
import time

import pytest
import torch

from minitorch_backend import compare, terminal
from minitorch_backend.compare import judge
from minitorch_backend.compare.report import write_data
from minitorch_backend.compare.store import Call, Store, Timeline
from minitorch_backend.compare.terminal import print_report
from tests.compare.faults import FAULTS, planted
from tests.compare.models import RUNS

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")


def test_the_timeline_keeps_the_largest_of_each_stretch():
    timeline = Timeline(points=8)
    for i in range(100):
        timeline.add(i, f"op{i}", local=1.0 if i == 37 else 0.01, inherited=float(i))
    assert timeline.width == 16 and len(timeline.local) == 7
    slot = 37 // 16
    assert timeline.local[slot] == 1.0 and timeline.ops[slot] == "op37" and timeline.inherited[slot] == 47.0


def test_the_store_keeps_the_worst():
    store = Store(keep=5)
    scores = list(range(100))
    random.Random(0).shuffle(scores)
    for s in scores:
        if store.wants(s):
            store.add_kept(s, Call(s, "op", judge.AGREE, "forward", 0, "", [], -1, [], "", ""))
    assert [c.index for c in store.kept()] == [99, 98, 97, 96, 95]


def planted_report(folder):
    fault = next(f for f in FAULTS if f.name == "last column of pooling left out")
    with planted(fault), compare.session(replay=folder / "replay") as report:
        RUNS["CNN"]("minitorch", steps=2)
    report.command = ["train.py"]
    return report


def test_the_files_of_a_report(tmp_path, capsys):
    report = planted_report(tmp_path)
    folder = report.write(tmp_path / "out")
    records = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    kinds = {r["kind"] for r in records}
    assert {"run", "finding", "operator", "call", "timeline"} <= kinds
    run = next(r for r in records if r["kind"] == "run")
    assert run["compared"] == report.store.compared and run["verdicts"]["subject worse"] >= 2
    page = (folder / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    report.print()
    out = capsys.readouterr().out
    assert "aten::max_pool2d_with_indices: subject worse, first at call" in out and "replay: python" in out


OPERATOR = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
COMMAND = f"python /home/somebody/{'a folder/' * 9}replay_0001.py --subject minitorch"
DETAIL = "elements [3, 12, 7] of gradient 1 and 20 more are 8.25e+06 where native has -1.5e-07"


def long_report(findings=1, operators=1):
    """A report with the longest of what its tables have."""
    call = {
        "index": 1234567, "op": OPERATOR, "verdict": "subject worse", "detail": DETAIL, "phase": "backward", "step": 4321,
        "module": "model.[red]blocks.11.attention.output", "subject_ulp": 8388608.0, "reference_ulp": 0.000123456,
        "stack": [], "forward_stack": [f"/home/somebody/{'deep/' * 20}model.py:1234 in forward: y = attend(q, k, v)"],
    }  # fmt: skip
    operator = {
        "op": OPERATOR, "calls": 1234567, "compared": 1234567, "seconds": 98765.0, "subject_ulp": 8388608.0,
        "reference_ulp": 0.000123456, "local": 0.000234567, "inherited": 0.000345678,
    }  # fmt: skip
    run = {"subject": "minitorch", "reference": "cpu", "compared": 1234567, "ended": "left while or after call 1234568"}
    finding = {"first": call, "count": 98765, "command": COMMAND}
    return {"run": run, "findings": [finding] * findings, "operators": [operator] * operators, "notes": [f"{'n' * 90}"]}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("kind", ["dumb", "xterm"])
@pytest.mark.parametrize("width", [40, 60, 80, 200, None])
def test_no_terminal_cuts_a_figure_off(monkeypatch, width, kind, encoding):
    """... nor a command, in any width (None: output goes to a file) and in an encoding without a table's lines."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    if width:
        monkeypatch.setattr(out, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", kind)
    print_report(long_report())
    out.flush()
    text = re.sub("\x1b\\[[0-9;]*m", "", raw.getvalue().decode(encoding))
    whole = ["1234567", "98765 times", "8.39e+06 / 0.000123", "0.000235", "0.000346", "80", "subject worse", COMMAND]
    for shown in (*whole, "left while or after call 1234568", "n" * 90, OPERATOR):
        assert shown in text, shown
    assert "…" not in text and max(map(len, text.splitlines())) < 250
    for word in ("[red]blocks", *DETAIL.split()):
        assert word in text, word


def test_a_table_is_no_narrower_than_its_figures():
    made = io.StringIO()
    print_report(long_report(), terminal.Console(file=made, width=40, markup=False, highlight=False))
    assert 110 <= max(len(line) for line in made.getvalue().splitlines() if "aten::" in line) < 250


def test_text_from_the_program_stays_text(tmp_path):
    report = compare.run(lambda: torch.ones(2, device="minitorch").exp())
    report.store.note("</script><script>document.title = 'taken'</script>")
    write_data(report.data(), tmp_path)
    assert "</script><script>document" not in (tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def page():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
        yield page
        browser.close()


def column(page, table, index):
    return page.locator(f"#{table} .row:not(.head) > div:nth-child({index})").all_inner_texts()


@needs_browser
def test_the_page_in_a_browser(page, tmp_path):
    report = planted_report(tmp_path)
    page.goto(f"file://{report.write(tmp_path)}/report.html")
    page.wait_for_selector("body[data-ready=yes]")
    assert "aten::max_pool2d_with_indices: subject worse" in page.inner_text("h1")
    finding = page.locator(".finding").first.inner_text()
    assert "in forward: x = F.max_pool2d" in finding and "replay/" in finding
    assert page.locator("#timeline path.inherited").get_attribute("d").count("L") > 20
    # The table sorts: by calls, downwards and upwards.
    page.click("#operators [data-column=calls]")
    calls = [int(t) for t in column(page, "operators", 2)]
    assert calls == sorted(calls, reverse=True) and len(calls) > 5
    page.click("#operators [data-column=calls]")
    calls = [int(t) for t in column(page, "operators", 2)]
    assert calls == sorted(calls)
    # It filters.
    page.fill("#call-filter", "backward conv")
    assert set(column(page, "calls", 2)) == {"aten::convolution_backward"}
    shown, total = page.inner_text("#call-count").split(" kept")[0].split(" of ")
    assert 0 < int(shown) < int(total)
    page.locator("#calls .row:not(.head)").first.click()
    assert "belongs to forward call" in page.inner_text("#call-detail")
    page.fill("#operator-filter", "relu")
    page.locator("#operators .row:not(.head)").first.click()
    assert "aten::relu" in page.inner_text("#histogram h3")
    heights = page.eval_on_selector_all("#histogram i", "bars => bars.map((b) => parseFloat(b.style.height))")
    assert max(heights) > 90
    page.screenshot(path=str(tmp_path / "report.png"), full_page=True)
    assert page.problems == []


@needs_browser
def test_a_million_calls_open_in_three_seconds(page, tmp_path):
    report = compare.run(lambda: torch.ones(2, device="minitorch").exp(), keep=2000)
    store, rng = report.store, random.Random(1)
    names = [f"aten::op{i}.Tensor" for i in range(400)]
    for i in range(1_000_000):
        op = names[i % 400]
        store.timeline.add(i, op, 10 ** rng.uniform(-8, -5), 10 ** rng.uniform(-7, -3))
        score = rng.random()
        if store.wants(score):
            statistics = store.statistics(op)
            statistics.calls += 1
            module = f"Model.blocks.{i % 24}.attention.proj"
            stack = [f"/home/user/model/file{k}.py:{i % 500} in forward: x = self.layer{k}(x)" for k in range(6)]
            store.add_kept(
                score,
                Call(
                    i,
                    op,
                    judge.AGREE,
                    "forward",
                    i // 500,
                    module,
                    stack,
                    -1,
                    [],
                    "f32[64, 128], " * 4,
                    "f32[64, 128]",
                    local=score,
                ),
            )
    store.calls = store.compared = 1_000_000
    folder = report.write(tmp_path)
    assert (folder / "report.html").stat().st_size < 8e6
    start = time.perf_counter()
    page.goto(f"file://{folder}/report.html")
    page.wait_for_selector("body[data-ready=yes]")
    opened = time.perf_counter() - start
    assert "1,000,000" in page.inner_text("#facts")
    assert page.locator("#calls .row").count() < 60, "all rows are in the page"
    page.eval_on_selector("#calls", "e => { e.scrollTop = e.scrollHeight; }")
    page.wait_for_function("document.querySelectorAll('#calls .row').length > 3")
    print(f"opened in {opened:.2f} s")
    assert opened < 3.0 and page.problems == []
