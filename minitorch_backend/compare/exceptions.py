"""What to make of an exception: one of an operator on a side, or one of the comparison itself."""

import os
import traceback
from typing import Any

from minitorch_backend.compare import judge
from minitorch_backend.compare.metadata import out_of_memory

LESS_MEMORY = ": leave out the shadow (--streaming), or take fewer calls (--every)"


def in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def give_up(c: Any, trouble: Exception) -> None:
    """A call could not be compared, which must never become the program's problem."""
    name, note = c.op.full_name, c.r.store.note
    if out_of_memory(trouble):
        note(f"memory ran out while {name} was compared{LESS_MEMORY}")
        if c.r.shadow is not None:
            c.r.shadow.surrender(c.r.store)
    else:
        last = traceback.extract_tb(trouble.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}:{last.lineno}"
        note(f"{name} could not be compared: {type(trouble).__name__}: {trouble} ({place})")


def compare_errors(c: Any, error: Exception | None, failure: Exception | None) -> None:
    """The verdict on a call that raised on one side or on both: `error` is the subject's, `failure` the reference's."""
    name, note = c.op.full_name, c.r.store.note
    if error is not None and failure is not None:
        if type(error) is not type(failure):
            note(f"{name}: subject raised {in_a_line(error)}, reference {in_a_line(failure)}")
        c.verdict = judge.EQUAL
    elif error is not None and out_of_memory(error):
        note(f"the subject ran out of memory in {name}{LESS_MEMORY}")
    elif error is not None:
        c.verdict, c.detail = judge.SUBJECT_RAISED, in_a_line(error)
    else:
        assert failure is not None
        lacking = isinstance(failure, NotImplementedError)
        if out_of_memory(failure):
            note(f"the reference ran out of memory{LESS_MEMORY}")
            if c.r.shadow is not None:
                c.r.shadow.surrender(c.r.store)
            c.verdict = judge.EQUAL
            return
        c.verdict = judge.MISSING if lacking else judge.REFERENCE_RAISED
        c.detail = in_a_line(failure)
        if lacking:
            note(f"{name}: the reference has no such operator; it was not compared")
