"""``minitorch bench``, the command: what it runs, resumes, compares and refuses."""

import json
import textwrap

import pytest
import torch
from click import ClickException
from click.testing import CliRunner

from minitorch_backend import _C, terminal
from minitorch_backend.bench import command, limits, placement, report, results, runner, suite
from minitorch_backend.bench.case import Case, forward
from minitorch_backend.bench.command import bench
from minitorch_backend.bench.results import Result
from minitorch_backend.kernels.errors import CompileError
from tests.python.own_cases import write_cases
from tests.python.races import SHORT

NATIVE = runner.native(_C.backend_name()).name


@pytest.fixture
def folder(tmp_path):
    cases = write_cases(
        tmp_path,
        """
            import torch
            from minitorch_backend.bench.case import Case, forward

            BOTH = ("cpu", "cuda")

            def broken(setup):
                raise ValueError("broken on purpose")

            BOTH = ("cpu", "cuda")
            CASES = [
                Case("exp", lambda s: forward(torch.exp, s.normal(64)), bytes=512.0, backends=BOTH, quick=True),
                Case("broken", broken, backends=BOTH),
                Case("floored", lambda s: forward(torch.exp, s.normal(64)), backends=BOTH, floor=1e9),
            ]
        """,
    )
    yield cases
    import sys

    for name in [n for n in sys.modules if n.split(".")[0] == "own"]:
        del sys.modules[name]
    sys.path.remove(str(tmp_path))


@pytest.fixture
def quick_limits(monkeypatch):
    monkeypatch.setattr(
        limits, "measure", lambda backend, advance: limits.Limits({8: 1e10}, {8: 1e10}, {"float32": 1e11})
    )
    monkeypatch.setattr(placement, "find", lambda backend: None)  # nothing waits for a busy machine's processors


def invoke(*arguments):
    result = CliRunner().invoke(bench, ["--time-limit=0", *(str(a) for a in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_command_goes_on_after_a_failure(folder, quick_limits, tmp_path):
    out = tmp_path / "r.jsonl"
    found = invoke("--cases", folder, "--quick", "--only", "tiny", "--json", out, "--only", ".")
    assert found.exit_code == 0 and "1 case: " in found.output
    found = invoke("--cases", folder, "--only", "exp|broken", "--json", out, "--check")
    assert (
        found.exit_code == 1
        and "ValueError: broken on purpose" in " ".join(found.output.split())
        and "failed: tiny/broken" in found.output
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["machine", "limits", "case", "case"]
    assert {"processor", "threads", "clock_mhz", "torch", "commit", "isa", "date"} <= lines[0].keys()


def test_command_compares_and_gates(folder, quick_limits, tmp_path):
    out = tmp_path / "old.jsonl"
    assert invoke("--cases", folder, "--only", "exp", "--json", out).exit_code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    lines[2] |= {"ratio": lines[2]["ratio"] * 50, "low": lines[2]["low"] * 50, "high": lines[2]["ratio"] * 51}
    out.write_text("\n".join(map(json.dumps, lines)))
    arguments = ("--cases", folder, "--only", "exp", "--json", tmp_path / "new.jsonl", "--compare", out)
    found = invoke(*arguments)
    assert found.exit_code == 1 and "slower than in the older run: tiny/exp" in found.output
    lines[0]["processor"] = "abacus"
    out.write_text("\n".join(map(json.dumps, lines)))
    found = invoke(*arguments)
    assert found.exit_code == 1 and "abacus" in found.output and "--force" in found.output
    found = invoke(*arguments, "--force")
    assert found.exit_code == 1 and "compared although" in found.output and "slower" in found.output


def test_command_knows_its_names(folder, tmp_path):
    assert "3 cases" in invoke("--cases", folder, "--list").output
    found = invoke("--cases", folder, "--only", "exq")
    assert found.exit_code == 1 and "near matches: tiny/exp" in found.output
    assert "not a regular expression" in invoke("--cases", folder, "--only", "(").output
    found = invoke("--cases", folder, "--against", "cdua")
    assert found.exit_code == 2 and "near matches: cuda" in found.output
    assert "no cases in" in invoke("--cases", tmp_path / "nowhere", "--list").output


def test_an_interrupted_run_goes_on(folder, quick_limits, tmp_path):
    out = tmp_path / "r.jsonl"
    assert invoke("--cases", folder, "--only", "exp", "--json", out).exit_code == 0
    first = results.read(out).results["tiny/exp"]
    found = invoke("--cases", folder, "--only", "exp|floored", "--json", out, "--resume")
    run = results.read(out)
    assert found.exit_code == 0 and list(run.results) == ["tiny/exp", "tiny/floored"]
    assert run.results["tiny/exp"] == first and first.took > 0
    out.write_text(out.read_text().replace(f'"commit": "{run.machine["commit"]}"', '"commit": "another"'))
    found = invoke("--cases", folder, "--json", out, "--resume")
    assert found.exit_code == 1 and "cannot be resumed" in found.output and "commit: another" in found.output
    assert list(results.read(out).results) == ["tiny/exp", "tiny/floored"]


def test_the_short_visits_of_a_rough_look_are_not_kept(folder, quick_limits, tmp_path):
    out = tmp_path / "r.jsonl"
    arguments = ("--cases", folder, "--only", "exp", "--json", out)
    assert invoke(*arguments, "--quick").exit_code == 0 and results.read(out).machine["quick"]
    assert invoke(*arguments, "--quick", "--resume").exit_code == 0
    found = invoke(*arguments, "--resume")
    assert found.exit_code == 1 and "quick: True and False" in found.output
    head, known, result = (json.loads(line) for line in out.read_text().splitlines())
    result |= {key: result[key] / 50 for key in ("ratio", "low", "high")}  # whatever disturbs a run now, it is faster
    out.write_text("\n".join(map(json.dumps, (head, known, result))))
    assert invoke("--cases", folder, "--only", "exp", "--json", tmp_path / "n.jsonl", "--compare", out).exit_code == 0


def test_cases_of_unlike_work_are_not_counted():
    made = [Result(f"f/{name}", "f", rival="cpu", ratio=2.0, low=1.9, high=2.1, unlike=unlike)
            for name, unlike in (("a", ""), ("b", "ours fused"))]  # fmt: skip
    text = report.summary(made, "cpu")
    assert text.startswith("1 case: faster than cpu in 1,") and "1 of sides that do not do the same work" in text
    assert [report.marks(result).plain for result in made] == ["", "not the same work: ours fused"]


def test_a_run_is_resumed_only_as_the_same_race(folder, quick_limits, tmp_path):
    out = tmp_path / "r.jsonl"
    arguments = ("--cases", folder, "--only", "exp", "--json", out)
    assert invoke(*arguments, "--against", "self").exit_code == 0
    found = invoke(*arguments, "--resume")
    assert found.exit_code == 1 and f"ours: {NATIVE} again and minitorch" in found.output
    assert invoke(*arguments, "--compare", out).exit_code == 1
    assert invoke(*arguments).exit_code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    out.write_text("\n".join(map(json.dumps, [lines[0] | {"kernel": "k.py 12", "ours": "k"}, *lines[1:]])))
    found = invoke(*arguments, "--resume")
    assert found.exit_code == 1 and "kernel: k.py 12 and None" in found.output


def test_a_comparison_without_a_common_case_is_refused_at_once(folder, quick_limits, tmp_path):
    out = tmp_path / "r.jsonl"
    assert invoke("--cases", folder, "--only", "exp", "--json", out).exit_code == 0
    found = invoke("--cases", folder, "--only", "floored", "--json", tmp_path / "new.jsonl", "--compare", out)
    assert found.exit_code == 1 and command.NOTHING_COMPARED in found.output


def test_names_and_messages_are_shown_as_they_are(folder, quick_limits, tmp_path):
    (folder / "tiny.py").write_text(
        textwrap.dedent("""
            import torch
            from minitorch_backend.bench.case import Case, forward

            def broken(setup):
                raise RuntimeError("cannot open [/tmp/x] for reading :bug:")

            CASES = [
                Case("exp [bold] [/red]", lambda s: forward(torch.exp, s.normal(64)), backends=("cpu", "cuda")),
                Case("broken [dim]", broken, backends=("cpu", "cuda")),
            ]
        """)
    )
    out = tmp_path / "r.jsonl"
    for found in (invoke("--cases", folder, "--json", out), invoke("--results", out)):
        assert found.exit_code == 0
        text = "".join(found.output.split())
        for shown in ("tiny/exp[bold][/red]", "tiny/broken[dim]", "cannotopen[/tmp/x]forreading:bug:"):
            assert shown in text
    assert "tiny/broken [dim]" in invoke("--cases", folder, "--list").output


def test_a_narrow_terminal_and_a_poor_encoding_lose_no_figure(monkeypatch):
    import io

    made = Result("pointwise/add 16M f32", "pointwise", rival="cpu", seconds={"cpu": 1.234e-3, "minitorch": 1e-3},
                  ratio=1.234, low=1.2, high=1.3, share=0.5, bound="memory")  # fmt: skip
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    narrow = terminal.console()
    narrow.width = 40
    terminal.show(narrow, report.table([made], "cpu"))
    narrow.file.flush()
    text = raw.getvalue().decode("latin-1")
    for shown in ("pointwise/add 16M f32", "1.23 ms", "1 ms", "1.20 ? 1.30", "50% memory"):
        assert shown in text


def test_floors_are_chosen(folder):
    found = invoke("--cases", folder, "--list", "--floors", "--quick")
    assert "tiny/floored" in found.output and "1 case\n" in found.output


def test_floors_are_native_s(folder, quick_limits, tmp_path):
    arguments = ("--cases", folder, "--only", "floored", "--json", tmp_path / "r.jsonl")
    assert "below its floor" in invoke(*arguments).output
    assert "below" not in invoke(*arguments, "--against", "self").output


def test_floors_are_for_the_same_hardware(monkeypatch):
    made = Case("a", lambda s: None, floor=2.0, memory_floor=1.0)
    for backend, floor in (("cpu", 2.0), ("cuda", None)):
        monkeypatch.setattr(runner._C, "backend_name", lambda backend=backend: backend)
        result = runner.Runner([runner.Side("cpu", torch.device("cpu")), runner.OURS], limits.Limits()).start(made)
        assert result.floor == floor and (result.memory_floor is None) == (floor is None)


def test_wrong_calls_are_said_before_anything_is_measured(folder, monkeypatch, tmp_path):
    out = tmp_path / "old.jsonl"
    out.write_text('{"kind": "machine", "format": 2, "processor": "abacus"}\n')
    (tmp_path / "bad.py").write_text("syntax error(")
    monkeypatch.setattr(limits, "measure", lambda *given: pytest.fail("measured"))
    arguments = ("--cases", folder, "--only", "exp", "--json")
    for given, says in (
        ((tmp_path / "r.jsonl", "--compare", out), "abacus"),
        ((tmp_path / "r.jsonl", "--against", out), "abacus"),
        ((tmp_path / "r.jsonl", "--against", tmp_path / "bad.py"), "SyntaxError"),
        ((out / "r.jsonl",), "--json"),
    ):
        found = invoke(*arguments, *given)
        assert found.exit_code == 1 and says in found.output


@pytest.mark.parametrize("rival", ["nowhere.cpp", "nowhere.jsonl"])
def test_a_rival_that_is_not_there_is_refused(rival):
    found = invoke("--against", rival)
    assert found.exit_code == 2 and f"Invalid value for --against: File '{rival}' does not exist." in found.output


@pytest.mark.parametrize(
    "given", [("--time-limit", "nan"), ("--wait", "nan"), ("--wait", "-1"), ("--threads", "0"), ("--threads", "9" * 14)]
)
def test_a_number_that_is_none_of_its_kind_is_refused(given):
    found = invoke("--list", *given)
    assert found.exit_code == 2 and f"Invalid value for '{given[0]}'" in found.output


def test_a_result_file_knows_its_cases(tmp_path):
    out = tmp_path / "r.jsonl"
    case = {"kind": "case", "name": "tiny/exp", "family": "tiny"}
    out.write_text('{"kind": "machine", "format": 2, "processor": "abacus"}\n' + json.dumps(case))
    assert "near matches: tiny/exp" in invoke("--results", out, "--only", "exq").output
    assert "not a regular expression" in invoke("--results", out, "--only", "(").output


def test_an_interrupt_is_not_a_success(folder, quick_limits, monkeypatch, tmp_path):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(suite.Suite, "run", interrupt)
    found = invoke("--cases", folder, "--only", "exp|floored", "--json", tmp_path / "r.jsonl")
    assert found.exit_code == 130 and "0 of 2 cases are done" in found.output


def test_an_interrupt_before_the_first_case_is_one_too(folder, monkeypatch, tmp_path):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(limits, "measure", interrupt)
    found = invoke("--cases", folder, "--only", "exp", "--json", tmp_path / "r.jsonl")
    assert found.exit_code == 130 and "interrupted" in found.output


def test_what_cannot_be_written_is_said_before_limits_are_measured(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "measure", lambda *given: pytest.fail("measured"))
    for option in ("--json", "--plots"):
        found = invoke("--cases", folder, "--only", "exp", option, "/proc/nowhere/x")
        assert found.exit_code == 1 and f"{option} /proc/nowhere/x: " in found.output


def test_pictures_that_fail_hide_no_problem(folder, quick_limits, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    from minitorch_backend.bench import plots

    def full(*given):
        raise OSError("No space left on device")

    monkeypatch.setattr(plots, "save", full)
    found = invoke("--cases", folder, "--json", tmp_path / "r.jsonl", "--plots", tmp_path / "p", "--check")
    assert found.exit_code == 1 and "failed: tiny/broken" in found.output and "no pictures: No space" in found.output


def test_self_race_runs(folder, quick_limits, tmp_path):
    out = tmp_path / "self.jsonl"
    assert invoke("--cases", folder, "--only", "exp", "--against", "self", "--json", out).exit_code == 0
    assert list(results.read(out).results["tiny/exp"].seconds) == [NATIVE, f"{NATIVE} again"]


def test_command_takes_every_rival(folder, quick_limits, tmp_path):
    old, out, kernel = tmp_path / "old.jsonl", tmp_path / "new.jsonl", tmp_path / "halved.py"
    kernel.write_text("from minitorch_backend import kernels\nkernels.override('aten::exp', lambda x: x.exp())\n")
    common = ("--cases", folder, "--only", "exp", "--quick", "--json", out)
    assert invoke("--cases", folder, "--only", "exp", "--json", old).exit_code == 0
    for rival in ("cpu", old, kernel):
        found = invoke(*common, "--against", rival)
        assert found.exit_code in (0, 1) and results.read(out).results["tiny/exp"].status == "ok", found.output
        assert ("Against the older run" in found.output) == (rival == old)
    assert list(results.read(out).results["tiny/exp"].seconds) == ["halved", "minitorch"]


def test_compile_and_cuda_say_what_they_lack(monkeypatch):
    def none():
        raise CompileError("no C++ compiler: looked for g++")

    monkeypatch.setattr(command.compiler, "cxx", none)
    with pytest.raises(ClickException, match=r"torch\.compile needs a C.. compiler .no C.. compiler: looked for g"):
        command.find_sides("compile", "cpu")
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClickException, match="needs Triton"):
        command.find_sides("compile", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ClickException, match="this torch sees no GPU"):
        command.find_sides("cuda", "cpu")


def test_native_may_be_compiled():
    made = Case("a", lambda s: forward(lambda x: torch.exp(x) + 1, s.normal(64)), family="f")
    sides = command.find_sides("compile", "cpu")
    result = runner.Runner(sides, limits.Limits(), SHORT).run(made)
    assert result.status == "ok" and list(result.seconds) == ["cpu compiled", "minitorch"]


def test_host_cost_is_split():
    from minitorch_backend.bench import host

    assert set(_C.hollow_operators()) == set(host.calls("minitorch"))
    a = torch.ones(8, device="minitorch")
    with host.hollow("add.Tensor", "minitorch"):
        assert (a + a).data_ptr() == a.data_ptr()
    assert torch.equal((a + a).cpu(), torch.full((8,), 2.0))
    found = host.measure("mm", "cpu", count=50, rounds=3)
    assert found.keys() == {"native", "native hollow", "whole", "idle", "hollow"} and min(found.values()) > 0
    assert torch.equal(torch.mm(torch.eye(2, device="minitorch"), torch.eye(2, device="minitorch")).cpu(), torch.eye(2))
