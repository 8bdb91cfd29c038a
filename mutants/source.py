"""Mutants of Python modules, made by the operators of cosmic-ray and by leaving out a call.

Places where no change can alter behaviour are passed over: annotations, docstrings, `__all__`,
names of types, and texts. One place gives at most one mutant of a sample.
"""

import ast
import random
from collections.abc import Iterator

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from mutants.trial import Mutant

__all__ = ["mutants_of", "sample"]

_ODD = ("Variable", "_Is", "_Div", "_Pow", "Invert_", "UAdd", "USub_Not")
"""Operators whose results are errors of types, or the same as those of others."""


_GUARDS = ("strict", "compare", "repr", "maxsize")
"""Arguments that guard against errors of the code itself, or that only speed depends on."""


def mutants_of(text: str) -> Iterator[tuple[tuple[int, int], str, int]]:
    """Yield place, operator and occurrence of all mutants of a module."""
    tree = ast.parse(text)
    excluded = list(_excluded(tree))
    for name in plugins.operator_names():
        if any(odd in name for odd in _ODD):
            continue
        operator = plugins.get_operator(name)()
        nodes = ast_nodes(get_ast(text))
        places = (place for node in nodes for place, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(places):
            if not any(start <= place < stop for start, stop in excluded):
                yield place, name.removeprefix("core/"), occurrence
    for index, call in enumerate(_calls(tree)):
        yield (call.lineno, call.col_offset), "RemoveCall", index


def sample(path: str, text: str, count: int | None, seed: int) -> list[Mutant]:
    """Return `count` mutants of a module, of as many places, in the order of the places."""
    by_place: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for place, operator, occurrence in mutants_of(text):
        by_place.setdefault(place, []).append((operator, occurrence))
    chooser = random.Random(f"{seed} {path}")
    places = sorted(by_place)
    chosen = places if count is None else sorted(chooser.sample(places, min(count, len(places))))
    found = []
    for place in chosen:
        operator, occurrence = chooser.choice(by_place[place])
        if operator == "RemoveCall":
            changed = _without_call(text, occurrence)
        else:
            changed = mutate_code(text, plugins.get_operator(f"core/{operator}")(), occurrence)
        if changed is not None and changed != text:
            found.append(Mutant(path, *place, operator, changed))
    return found


def _excluded(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield _span(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.returns is not None:
                yield _span(node.returns)
            yield from (_marked(each) for each in node.decorator_list if _saves(each))
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            # An alias of a type is an expression, and a change of it is an error of types.
            if names == ["__all__"] or (names and names[0][:1].isupper() and "|" in _text(node)):
                yield _span(node)
        elif isinstance(node, ast.ClassDef):
            # Whether a value is frozen, or has slots, is not what tests are about.
            yield from map(_span, node.decorator_list)
        elif isinstance(node, ast.JoinedStr):
            yield _span(node)
        elif isinstance(node, ast.Call) and _text(node.func) in ("isinstance", "issubclass"):
            # `int | str` as a type.
            yield _span(node.args[1])
        elif isinstance(node, ast.keyword) and node.arg in _GUARDS:
            yield _span(node.value)


def _saves(decorator: ast.expr) -> bool:
    """Return whether a decorator keeps results, which changes the time of a call only."""
    return _text(decorator).partition("(")[0] in ("cache", "lru_cache", "functools.lru_cache")


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _marked(decorator: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the place of a decorator with its sign."""
    (line, column), end = _span(decorator)
    return (line, column - 1), end


def _calls(tree: ast.Module) -> list[ast.Expr]:
    """Return the statements inside functions that are nothing but a call."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    found = {
        (each.lineno, each.col_offset): each
        for function in functions
        for each in ast.walk(function)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
    }
    return [found[place] for place in sorted(found)]


def _without_call(text: str, index: int) -> str:
    call = _calls(ast.parse(text))[index]
    lines = text.splitlines(keepends=True)
    assert call.end_lineno is not None
    lines[call.lineno - 1 : call.end_lineno] = [" " * call.col_offset + "pass\n"]
    return "".join(lines)
