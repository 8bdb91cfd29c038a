"""The source files of the package as values: what each one is called, imports and defines.

Knows Python's syntax and nothing of the rules; the tests beside it hold those.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ingot"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported name: the module it comes from, in full, and where the statement stands."""

    target: str
    line: int
    inside_function: bool


@dataclass(frozen=True)
class Module:
    """One source file. ``name`` leaves the package's own name out: ``codecs.blosc``."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def folder(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def imports(self) -> Iterator[Import]:
        """Yield what is imported; ``from a import b`` gives ``a.b``, for b may be a module."""
        yield from _walk_imports(self.tree, inside_function=False)

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def public(self) -> Iterator[Function | ast.ClassDef]:
        """Yield the functions and classes at the top of the file that anyone may use."""
        for node in self.tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                yield node

    def exported(self) -> list[str] | None:
        """Return the names in ``__all__``, None when there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets):
                names: list[str] = ast.literal_eval(node.value)
                return names
        return None

    def bound(self) -> set[str]:
        """Return every name that the top of the file binds."""
        return set(_bound_names(self.tree.body))


def package_modules() -> list[Module]:
    """Read every module of the package."""
    return [read(path, PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]


def read(path: Path, top: Path) -> Module:
    """Read one file below ``top``; the package itself is called ``ingot``."""
    parts = path.relative_to(top).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts) or "ingot"
    return Module(name, path.read_text(encoding="utf-8"), is_package)


def _walk_imports(node: ast.AST, inside_function: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, inside_function)
    elif isinstance(node, ast.ImportFrom):
        prefix = "." * node.level + (node.module or "")
        for alias in node.names:
            yield Import(f"{prefix}.{alias.name}", node.lineno, inside_function)
    inside_function = inside_function or isinstance(node, Function | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk_imports(child, inside_function)


def _bound_names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                if isinstance(part, ast.Name):
                    yield part.id
        elif isinstance(node, ast.If | ast.Try):
            yield from _bound_names([*node.body, *node.orelse])
