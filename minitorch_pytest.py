"""A pytest fixture for :mod:`minitorch_backend.compare`: tests that fail when a device computes something wrong.

    def test_model(compare_devices):
        with compare_devices(subject="minitorch"):
            train(model)

It stands outside the package so that pytest, which imports every plugin it finds, does not load the device for it.
"""

import contextlib

import pytest


@pytest.fixture
def compare_devices(request, tmp_path):
    """A context manager with the settings of ``compare.Options``; at its end the test fails if there are findings.

    The report and replay files are in a folder of the test's own, which the failure names.
    """
    from minitorch_backend.compare import session
    from minitorch_backend.compare.terminal import headline

    @contextlib.contextmanager
    def compare(**settings):
        with session(replay=tmp_path / "compare" / "replay", **settings) as report:
            yield report
        if report.findings:
            folder = report.write(tmp_path / "compare")
            lines = [headline(report.data()), f"report: {folder / 'report.html'}"]
            lines += [f"replay: {f.command}" for f in report.findings if f.command]
            pytest.fail("\n".join(lines), pytrace=False)

    return compare
