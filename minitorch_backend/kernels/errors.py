"""What can be wrong with a user's kernel."""


class KernelError(RuntimeError):
    """A kernel does not do what its operator needs: wrong shape, dtype or number of results, or it raised."""


class CompileError(KernelError):
    """A source does not compile. The text is the compiler's own message."""
