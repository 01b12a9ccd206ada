"""Checks the links of the documentation; --fix rewrites line numbers that have moved.

A link to a line, [`text`](path#L12), names what it points at: the text between the backticks. It must be somewhere in
that file. A line number that has moved is a note; `make format` mends it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[((?:`[^`]*`|[^\]`])*)\]\(([^)#\s]+)(?:#L(\d+))?\)")


def check(page: pathlib.Path, fix: bool) -> list[str]:
    errors: list[str] = []

    def look(match: re.Match) -> str:
        label, target, line = match.groups()
        where = f"{page.relative_to(ROOT)}: {match.group(0)}"
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        path = page.parent / target
        if not path.exists():
            errors.append(f"{where}: no such file")
        elif line:
            text = label.strip("`")
            found = [i for i, code in enumerate(path.read_text().splitlines(), 1) if text in code]
            if not found:
                errors.append(f"{where}: the file does not contain {text!r}")
            elif int(line) not in found:
                if not fix:
                    print(f"note: {where}: now at line {found[0]} ('make format' mends it)")
                return f"[{label}]({target}#L{found[0]})"
        return match.group(0)

    text = page.read_text()
    fixed = LINK.sub(look, text)
    if fix and fixed != text:
        page.write_text(fixed)
    return errors


def main() -> int:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/**/*.md")]
    errors = [error for page in sorted(pages) for error in check(page, "--fix" in sys.argv[1:])]
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
