"""Files that are there whole or not at all."""

import contextlib
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where to write what takes the place of ``path`` in one step: nobody reads half of it.

    After an exception, as of a full disk, what was at ``path`` is as it was, and nothing lies beside it.
    """
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
