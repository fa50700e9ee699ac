"""Report lines of code per package, and what is longer than the style allows.

    make lines

Code lines are those that are neither blank nor comment nor docstring. Files over 300 lines and functions
over 40 are listed: the style asks for less, mostly.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "rollwright"
MAX_FILE, MAX_FUNCTION = 300, 40
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the line numbers of all docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        value = first.value if isinstance(first, ast.Expr) else None
        if first is not None and isinstance(value, ast.Constant) and isinstance(value.value, str):
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str) -> set[int]:
    """Return the line numbers that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(ast.parse(text))


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield (name, lines) of functions with more code lines than the style asks for."""
    code = code_lines(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
            num = len(code & set(range(node.lineno, node.end_lineno + 1)))
            if num > MAX_FUNCTION:
                yield node.name, num


def main() -> None:
    """Print the report."""
    packages: dict[str, list[int]] = {}
    long_files, long_names = [], []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        name = path.relative_to(SOURCE)
        package = name.parts[0] if len(name.parts) > 1 else "(vocabulary)"
        row = packages.setdefault(package, [0, 0, 0])
        num_lines = text.count("\n")
        row[0] += 1
        row[1] += num_lines
        row[2] += len(code_lines(text))
        if num_lines > MAX_FILE:
            long_files.append((num_lines, name))
        long_names += [(num, name, function) for function, num in long_functions(text)]
    print(f"{'package':<14}{'files':>6}{'lines':>8}{'code':>8}")
    for package, (num_files, num_lines, num_code) in sorted(packages.items()):
        print(f"{package:<14}{num_files:>6}{num_lines:>8}{num_code:>8}")
    total = [sum(column) for column in zip(*packages.values(), strict=True)]
    print(f"{'all':<14}{total[0]:>6}{total[1]:>8}{total[2]:>8}")
    tests = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    print(f"{'tests':<14}{'':>6}{tests:>8}")
    for num, name in sorted(long_files, reverse=True):
        print(f"over {MAX_FILE} lines: {name} ({num})")
    for num, name, function in sorted(long_names, reverse=True):
        print(f"over {MAX_FUNCTION} lines of code: {name}: {function} ({num})")


if __name__ == "__main__":
    main()
