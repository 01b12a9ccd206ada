"""``python -m minitorch_backend``: the command ``minitorch``."""

from minitorch_backend.cli import main

main(prog_name="minitorch")
