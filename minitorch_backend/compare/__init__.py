"""Diff: the same work on two devices, operator by operator, and a verdict on who is wrong.

    from minitorch_backend import compare

    with compare.session(replay="out/replay") as report:  # the code inside runs on "minitorch" as it is
        train(model)
    report.print()
    report.write("out")  # report.html, report.jsonl

The two devices are parameters. The *subject* is the one that the program runs on; the *reference* is what each of its
calls is held against; the *arbiter* is the same operator on the reference in float64.

Data model. The dispatch mode (recorder) sees every operator call below autograd: forward, backward and optimizer.
A ``Call`` holds what was compared and where: index in the run, operator, phase, step, module path, Python stack; for a
backward call, the forward call whose node it belongs to; inputs in words; the verdict; errors of both sides against the
arbiter in ulp, relative to the tensor's largest value, and in units of epsilon; the distance of the two sides. Calls
stream through a ``Store`` that keeps sums per operator, a timeline of fixed length, the worst calls, and the findings,
each the first of all calls with one operator, phase and verdict.

Two errors are kept apart, and are never computed from each other's inputs:

- *local*: subject and reference on the same inputs, the subject's. It is what the operator itself gets wrong, and the
  only one that verdicts rest on.
- *inherited*: the subject's result against a native shadow of the whole run, in which each operator takes the shadow's
  own results. It is how far the two programs have drifted apart by then.
"""

from minitorch_backend.compare.options import Options
from minitorch_backend.compare.session import Report, run, session
from minitorch_backend.compare.trajectories import Trajectories, train

__all__ = ["Options", "Report", "Trajectories", "run", "session", "train"]
