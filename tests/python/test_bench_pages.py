"""What is made of results: pictures, the page of benchmarks, README's figures, and whether the race can be trusted."""

import json
import pathlib

import pytest

from minitorch_backend.bench import limits, results
from minitorch_backend.bench.results import Result, Run


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    from minitorch_backend.bench import plots

    made = {
        f"{f}/a": Result(f"{f}/a", f, rival="cpu", seconds={"cpu": 2e-3, "minitorch": 1e-3}, ratio=r, low=r, high=r,
                         bytes=1e6, flops=1e7)
        for f, r in (("x", 2.0), ("y", 0.5))
    }  # fmt: skip
    made["x/b"] = Result(
        "x/b", "x", rival="cpu", seconds={"minitorch": 1e-3}, ratio=9.0, low=9.0, high=9.0, unlike="fused"
    )
    assert {name: [r.name for r in found] for name, found in plots.families(list(made.values())).items()} == {
        "x": ["x/a"], "y": ["y/a"],
    }  # fmt: skip
    run = Run({"rival": "cpu"}, limits.Limits({2**20: 1e11, 2**28: 1e10}, {}, {"float32": 1e11}), made)
    for path in plots.save(run, tmp_path):
        assert path.stat().st_size > 5000 and isinstance(path, pathlib.Path)


def test_families_differ_in_the_roofline(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from minitorch_backend.bench import plots

    made = {
        f"f{i}/a": Result(f"f{i}/a", f"f{i}", rival="cpu", seconds={"minitorch": 1e-3}, ratio=1.0, low=1.0, high=1.0,
                          bytes=1e6, flops=1e7 if i else None)
        for i in range(20)
    }  # fmt: skip
    axes = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: (axes.extend(self.axes), path.touch()))
    plots.roofline(Run({}, limits.Limits(), made), tmp_path / "r.png")
    looks = {(line.get_marker(), line.get_color()) for line in axes[0].lines if line.get_label()[0] == "f"}
    assert len(looks) == 19 and "not shown: f0" in axes[0].get_xlabel()


def test_page_has_a_chapter_for_each_run_and_quotes_trust(tmp_path):
    pytest.importorskip("matplotlib")
    from tools import benchmarks_page

    assert benchmarks_page.write(tmp_path, tmp_path / "page.md") == [] and not (tmp_path / "page.md").exists()
    facts = {"device": "Abacus", "torch": "2", "threads": 2, "isa": "beads", "commit": "c" * 40, "date": "2026-01-01T"}
    for backend, rival in (("cuda", "cuda"), ("cpu", "cpu")):
        writer = results.Writer(
            tmp_path / f"{backend}.jsonl", facts | {"backend": backend, "rival": rival}, limits.Limits()
        )
        writer.add(Result("f/fast", "f", rival=rival, seconds={rival: 2e-3, "minitorch": 1e-3}, ratio=2.0, low=1.9,
                          high=2.1, bytes=1e6, flops=1e7, took=120.0))  # fmt: skip
        writer.add(Result("f/broken", "f", status="failed", message="out of beads"))
        writer.add(Result("f/other", "f", rival=rival, ratio=9.0, low=8.0, high=10.0, unlike="ours fused"))
        writer.close()
    case = {"ratios": [2.0, 2.02, 2.04], "seconds": [1e-3] * 3, "load": [0.0] * 3}
    (tmp_path / "trust-spread.json").write_text(
        json.dumps({"kind": "spread", "machine": {}, "cases": {"f/fast": case}})
    )
    alone = {"f/fast": [1.2, 1.1, 1.3, True, 0.0], "f/slow": [1.0, 0.9, 1.1, False, 0.0]}
    (tmp_path / "trust-self.json").write_text(json.dumps({"kind": "self", "machine": {}, "cases": alone}))
    assert benchmarks_page.write(tmp_path, tmp_path / "page.md") == ["cpu", "cuda"]
    text = (tmp_path / "page.md").read_text()
    assert text.index("## Abacus, CPU: cpu") < text.index("## Abacus, CUDA: cuda") and "2 minutes" in text
    assert text.count("**2.00** (1.90 – 2.10)") == 2 and text.count("failed: out of beads") == 2
    assert text.count("| not the same work: ours fused |") == 2 and text.count("| f | 1 | 2.00 |") == 2
    for picture in ("cpu-ratios", "cpu-roofline", "cuda-ratios", "cuda-roofline"):
        assert f"images/{picture}.png" in text and (tmp_path / "images" / f"{picture}.png").stat().st_size > 5000
    assert "in 2 cases: 1 were called different: f/fast (1.200)" in text and "| f/fast | 1 ms | 2.02 | 2.0% |" in text


def test_readme_s_figures_are_those_of_the_runs(monkeypatch, tmp_path, capsys):
    from tools import readme_figures

    page = tmp_path / "README.md"
    page.write_text(f"before\n{readme_figures.BEGIN}\nold\n{readme_figures.END}\nafter\n")
    facts = {"device": "Abacus", "torch": "2", "threads": 2, "backend": "cpu"}
    for date, ratio in (("2026-01-02", 3.0), ("2026-01-01", 2.0)):
        known = {"f/a": Result("f/a", "f", rival="cpu", ratio=ratio, low=ratio, high=ratio)}
        results.Writer(tmp_path / f"cpu-{date}.jsonl", facts | {"date": date}, limits.Limits(), known.values()).close()
    for name, value in (("README", page), ("RESULTS", tmp_path), ("CPU", (("adding", ("f/a",)),)), ("CPU_MEMORY", ())):
        monkeypatch.setattr(readme_figures, name, value)
    monkeypatch.setattr(readme_figures.sys, "argv", ["readme_figures.py"])
    assert readme_figures.main() == 1 and "not those of benchmarks/results" in capsys.readouterr().out
    monkeypatch.setattr(readme_figures.sys, "argv", ["readme_figures.py", "--write"])
    assert readme_figures.main() == 0 and "old" not in page.read_text()
    assert (
        "| case | cpu-2026-01-02 | cpu-2026-01-01 |" in page.read_text()
        and "| adding | 3.0 | 2.0 |" in page.read_text()
    )
    monkeypatch.setattr(readme_figures.sys, "argv", ["readme_figures.py"])
    assert readme_figures.main() == 0 and page.read_text().startswith("before") and "after" in page.read_text()


def test_spread_and_false_alarms_are_judged(monkeypatch, tmp_path):
    from rich.console import Console

    from benchmarks import trust

    console, part, kept = Console(quiet=True), tmp_path / "part", []
    keep = lambda found: kept.append(json.dumps(found))  # noqa: E731
    assert trust.spread([1.0, 1.02, 1.04]) == pytest.approx(0.04 / 1.02)

    def run(ratio, name="f/long", seconds=2e-3):
        part.touch()
        result = Result(name, "f", rival="cpu", seconds={"cpu": seconds}, ratio=ratio, low=ratio, high=ratio)
        return Run({"device": "x"}, limits.Limits(), {name: result})

    ratios = iter([1.0, 1.02, 1.04, 1.5, 2.0])
    monkeypatch.setattr(trust, "bench", lambda arguments, path, console: run(next(ratios)))
    found = trust.start("spread", tmp_path / "no.json", False)
    trust.measure_spread(found, 3, "", part, console, keep)
    assert trust.show_spread(found, console) and len(kept) == 3 and not part.exists()
    trust.measure_spread(found, 5, "", part, console, keep)  # two more: 1.5 and 2.0
    assert not trust.show_spread(found, console)
    assert json.loads(kept[-1])["cases"]["f/long"]["ratios"] == [1.0, 1.02, 1.04, 1.5, 2.0]
    begun = []
    monkeypatch.setattr(trust, "begin", lambda path, limits, facts: begun.append(limits))
    monkeypatch.setattr(trust, "bench", lambda arguments, path, console: run(1.0))
    trust.measure_spread(json.loads(kept[-1]), 6, "", part, console, keep)  # another call goes on
    assert begun == [limits.Limits()]
    for ratio, good in ((1.5, False), (1.01, True)):
        monkeypatch.setattr(trust, "bench", lambda arguments, path, console, ratio=ratio: run(ratio))
        found = trust.start("self", tmp_path / "no.json", False)
        trust.measure_self(found, "", part, console, keep)
        assert trust.show_self(found, console) == good


def test_a_run_that_timed_nothing_is_no_success(monkeypatch, tmp_path):
    from rich.console import Console

    from benchmarks import trust

    console, part, keep = Console(record=True, width=200), tmp_path / "part", lambda found: None

    def run(*names):
        """Cases f/a and f/b, of which these are timed."""
        part.touch()
        made = {
            name: Result(name, "f", rival="cpu", seconds={"cpu": 2e-3}, ratio=1.0, low=1.0, high=1.0)
            if name in names else Result(name, "f", status="failed", message="out of beads")
            for name in ("f/a", "f/b")
        }  # fmt: skip
        return Run({"device": "x"}, limits.Limits(), made)

    def found_in(kind, measure, *runs):
        left = iter(runs)
        monkeypatch.setattr(trust, "bench", lambda arguments, path, console: run(*next(left)))
        found = trust.start(kind, tmp_path / "no.json", False)
        measure(found, *([len(runs)] if kind == "spread" else []), "", part, console, keep)
        return found

    for kind, measure, show in (("spread", trust.measure_spread, trust.show_spread),
                                ("self", trust.measure_self, trust.show_self)):  # fmt: skip
        with pytest.raises(SystemExit, match="timed none of its cases: f/a: failed: out of beads"):
            found_in(kind, measure, ())
        assert not part.exists()
        assert show(found_in(kind, measure, ("f/a", "f/b")), console)
        assert not show(found_in(kind, measure, ("f/a",)), console)
        assert "f/b was not timed in every run: failed: out of beads" in console.export_text()
        assert not show({"cases": {}, "runs": 0}, console) and "no case was timed" in console.export_text()
    # A case that an earlier run knew and a later one does not have.
    lacking = {"runs": 2, "cases": {"f/a": {"ratios": [1.0], "seconds": [1e-5], "load": [0.0]}}}
    assert not trust.show_spread(lacking, console) and "not in 1 of 2 runs" in console.export_text()


def test_trust_goes_on_where_it_was(tmp_path):
    from benchmarks import trust

    path = tmp_path / "trust.json"
    record = {"kind": "self", "machine": {}, "runs": 1, "cases": {"a": [1.0, 0.99, 1.01, False, 0.0]}}
    path.write_text(json.dumps(record))
    assert "a" in trust.start("self", path, False)["cases"]
    with pytest.raises(SystemExit, match="another kind: self"):
        trust.start("spread", path, False)
    path.write_text(json.dumps(record | {"machine": {"commit": "another"}}))
    with pytest.raises(SystemExit, match="another commit"):
        trust.start("self", path, False)
    path.write_text("half a recor")
    with pytest.raises(SystemExit, match="not a record"):
        trust.start("self", path, False)
    assert not trust.start("self", path, True)["cases"] and not path.exists()


def test_a_run_of_trust_takes_the_limits_of_the_first(tmp_path):
    from benchmarks import trust

    known = limits.Limits({8: 1e10}, {8: 1e10}, {"float32": 1e11})
    trust.begin(tmp_path / "part", known, {"device": "x"})
    assert results.read(tmp_path / "part").limits == known
    trust.begin(tmp_path / "other", None, {})
    assert not (tmp_path / "other").exists()
