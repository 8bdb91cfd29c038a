"""Imports point down: who may import whom, and where an import may stand."""

import ast
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import pytest

from tests.architecture.source import ROOT, Module, package_modules

# From the bottom up. A module imports lower rows, and its own row inside one room: one folder, or
# the modules at the top of the package. Names stand for themselves; a name with a star for the rest
# of its folder. ``ingot`` is the package. docs/decisions/0010-the-house.md has the same table.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "_lazy"),
    (
        *("options", "fields", "native", "signals", "dtypes", "grid", "selection"),
        *("ragged_array", "nullable_array", "logical_types", "values"),
    ),
    (
        *("codecs.codec", "stores.documents", "stores.store", "stores.versions"),
        *("query.expr", "query.parse"),
    ),
    ("blosc.*", "stores.*", "schema", "formats.addresses", "formats.shard_index"),
    ("codecs.*", "device.*", "formats.checkable", "formats.format", "formats.json", "formats.keys"),
    ("engine.*", "formats.*"),
    (
        *("query.*", "interop.arrow", "interop.arrow_dataset", "interop.cupy"),
        *(
            "interop.duckdb",
            "interop.hdf5",
            "interop.matplotlib",
            "interop.narwhals",
            "interop.pandas",
        ),
    ),
    ("containers.*",),
    ("conversion.*", "check", "repair", "pack"),
    ("api",),
    ("interop.*", "compat.*"),
    ("ingot", "testing.*"),
    ("cli.*",),
    ("__main__",),
)

# Walls that the levels alone do not build: (who, may not see, except, why).
WALLS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("codecs.*", "stores*", (), "codecs never touch a store"),
    ("stores.*", "codecs*", (), "stores hold bytes, whatever they mean"),
    ("engine.*", "formats*", ("formats.format", "formats.keys"), "the engine sees contracts"),
    (
        "engine.*",
        "stores*",
        ("stores.documents", "stores.store", "stores.versions"),
        "the engine sees contracts",
    ),
    ("formats.*", "engine*", (), "formats never move data"),
    (
        "formats.*",
        "stores*",
        ("stores.documents", "stores.store"),
        "formats see the contract of stores",
    ),
)

# Optional or heavy packages: the only module that may import them inside a function.
LAZY: Mapping[str, str] = {
    "cubed": "interop.dask",
    "cupy": "interop.cupy",
    "dask": "interop.dask",
    "duckdb": "interop.duckdb",
    "matplotlib": "interop.matplotlib",
    "ml_dtypes": "formats.zarr.v3_types",
    "msgpack": "codecs.foreign",
    "narwhals": "interop.narwhals",
    "numcodecs": "codecs.foreign",
    "obstore": "stores.objects.client",
    "pandas": "interop.pandas",
    "pcodec": "codecs.foreign",
    "polars": "interop.polars",
    "pyarrow": "interop.arrow",
    "tables": "interop.hdf5",
    "xarray": "interop.xarray*",
    "zarr": "interop.zarr",
    "zfpy": "codecs.foreign",
}

# Packages that one module, or the modules of one folder, keep to themselves, wherever the import
# stands.
CONFINED: Mapping[str, str] = {"rich": "cli.*", **LAZY}

# Heavy, but not optional: the twin and the codecs taken from it may import it at their top.
SHARED: Mapping[str, tuple[str, ...]] = {"numcodecs": ("blosc.*", "codecs.*", "interop.numcodecs")}

# Modules that may import by a name computed at run time.
DYNAMIC: Mapping[str, str] = {
    "native": "the kernel is chosen at first use",
    "cli.commands": "commands are loaded by name when they are called",
    "codecs.codec": "codecs are loaded by name when they are first met",
    "formats.registry": "formats are loaded by name when they are first met",
    "_lazy": "modules and public names are loaded on first use",
}


def level(name: str) -> int | None:
    """Return the row of a module; a package stands where the rest of its folder does."""
    for row, names in enumerate(LEVELS):
        if name in names:
            return row
    for row, names in enumerate(LEVELS):
        if any(fnmatchcase(name, pattern) or pattern == f"{name}.*" for pattern in names):
            return row
    return None


def edges(modules: Iterable[Module]) -> list[tuple[Module, str, int]]:
    """Return who imports which module of ours, with the line."""
    modules = list(modules)
    names = {module.name for module in modules}
    found = []
    for module in modules:
        for imported in module.imports():
            target = resolve(imported.target, names)
            if target is not None and target != module.name:
                found.append((module, target, imported.line))
    return found


def resolve(target: str, names: set[str]) -> str | None:
    """Find the module of ours behind an imported name; None when it is not ours."""
    if target.startswith("."):
        return target
    first, _, rest = target.partition(".")
    if first != "ingot":
        return None
    while rest and rest not in names:
        rest = rest.rpartition(".")[0]
    return rest or "ingot"


def upward(modules: Iterable[Module]) -> list[str]:
    """List the imports that do not point down."""
    problems = []
    for module, target, line in edges(modules):
        here, there = level(module.name), level(target)
        place = f"{module.name}:{line} imports {target}"
        if target.startswith("."):
            problems.append(f"{place}: write the whole name")
        elif here is None or there is None:
            problems.append(f"{place}: not in the table of levels")
        elif there > here or (there == here and not same_folder(module, target)):
            problems.append(f"{place}: row {here} must not see row {there}")
    return problems


def same_folder(module: Module, target: str) -> bool:
    """Say whether both stand in one folder, in a folder of it, or at the top of the package."""
    room, other = module.name.partition(".")[0], target.partition(".")[0]
    if "." not in module.name and "." not in target:
        return not module.is_package
    return room == other


def walled(modules: Iterable[Module]) -> list[str]:
    """List the imports that go through a wall."""
    return [
        f"{module.name}:{line} imports {target}: {why}"
        for module, target, line in edges(modules)
        for who, hidden, allowed, why in WALLS
        if fnmatchcase(module.name, who) and fnmatchcase(target, hidden) and target not in allowed
    ]


def cycles(modules: Iterable[Module]) -> list[str]:
    """List the modules that reach themselves by imports."""
    graph: dict[str, set[str]] = {}
    for module, target, _ in edges(modules):
        graph.setdefault(module.name, set()).add(target)

    def reach(name: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph.get(name, ()))
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                waiting.extend(graph.get(current, ()))
        return seen

    return sorted(name for name in graph if name in reach(name))


def hidden(modules: Iterable[Module]) -> list[str]:
    """List the imports inside functions that are not allowed."""
    return [
        f"{module.name}:{imported.line} imports {imported.target} inside a function"
        for module in modules
        for imported in module.imports()
        if imported.inside_function and LAZY.get(imported.target.partition(".")[0]) != module.name
    ]


def dynamic(modules: Iterable[Module]) -> list[str]:
    """List the calls that import by a computed name and are not allowed to."""
    return [
        f"{module.name}:{node.lineno} imports by a computed name"
        for module in modules
        if module.name not in DYNAMIC
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) == "load"
            or ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        )
    ]


def unstated(modules: Iterable[Module]) -> list[str]:
    """List what is put off (`ingot._lazy`) and not stated for checkers of types.

    What is stated is held to the levels and the walls like every other import.
    """
    return [
        f"{module.name}:{node.lineno} puts off {ast.unparse(node.args[0])} and does not state it"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "deferred"
        and ast.unparse(node.args[0])
        not in {repr(imported.target) for imported in module.imports()}
    ]


def stray(modules: Iterable[Module]) -> list[str]:
    """List the imports of a confined package outside the module or folder it belongs to."""
    problems = []
    for module in modules:
        for imported in module.imports():
            package = imported.target.partition(".")[0]
            owner = CONFINED.get(package, module.name)
            shared = any(fnmatchcase(module.name, name) for name in SHARED.get(package, ()))
            if not fnmatchcase(module.name, owner) and not shared:
                problems.append(f"{module.name}:{imported.line}: {package} belongs to {owner}")
    return problems


_REEXPORTS = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)


def is_for_types(node: ast.stmt) -> bool:
    """Say whether a statement imports for checkers of types, and does nothing when it runs."""
    return (
        isinstance(node, ast.If)
        and ast.unparse(node.test) == "TYPE_CHECKING"
        and not node.orelse
        and all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)
    )


def wandering(modules: Iterable[Module]) -> list[str]:
    """List what package files do besides re-exporting their own folder."""
    problems = []
    for module in modules:
        if not module.is_package:
            continue
        for node in module.tree.body:
            if not (isinstance(node, _REEXPORTS) or is_for_types(node)):
                problems.append(f"{module.name}:{node.lineno}: a package only re-exports")
        if module.name != "ingot":
            for imported in module.imports():
                own = f"ingot.{module.name}."
                if not imported.target.startswith((own, "ingot._lazy.", "typing.", "sys")):
                    problems.append(f"{module.name}:{imported.line}: imports {imported.target}")
    return problems


def unlisted(modules: Iterable[Module]) -> list[str]:
    """List the modules that the table of levels does not know."""
    return [module.name for module in modules if level(module.name) is None]


RULES = (unlisted, upward, walled, cycles, hidden, dynamic, unstated, stray, wandering)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_keeps_the_rule(rule):
    assert rule(package_modules()) == []


def test_the_record_has_the_same_rows():
    record = (ROOT / "docs" / "decisions" / "0010-the-house.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| (.+) \|$", record, re.MULTILINE)
    assert [tuple(re.findall(r"`([^`]+)`", row)) for row in rows] == list(LEVELS)


def test_package_has_modules():
    assert {"errors", "native", "cli.app"} <= {module.name for module in package_modules()}


def module(name: str, text: str, is_package: bool = False) -> Module:
    return Module(name, text, is_package)


ERRORS = module("errors", "")

VIOLATIONS = [
    (unlisted, [module("helpers", "")]),
    (upward, [ERRORS, module("cli", "", is_package=True), module("grid", "from ingot import cli")]),
    (upward, [module("errors", "import ingot.grid"), module("grid", "")]),
    (upward, [module("blosc.chunk", "import ingot.stores.zip"), module("stores.zip", "")]),
    (upward, [ERRORS, module("grid", "from .errors import IngotError")]),
    (upward, [ERRORS, module("grid", "if TYPE_CHECKING:\n    from ingot.schema import Schema")]),
    (
        walled,
        [
            module("engine.run", "from ingot.stores.local.store import X"),
            module("stores.local.store", ""),
        ],
    ),
    (walled, [module("formats.blsk", "import ingot.engine.plan"), module("engine.plan", "")]),
    (walled, [module("codecs.filters", "import ingot.stores.store"), module("stores.store", "")]),
    (
        cycles,
        [
            module("stores.zip", "import ingot.stores.local.store"),
            module("stores.local.store", "import ingot.stores.zip"),
        ],
    ),
    (hidden, [ERRORS, module("containers.array", "def f():\n    from ingot import errors")]),
    (hidden, [module("containers.array", "class A:\n    def f(self):\n        import pandas")]),
    (dynamic, [module("containers.array", "import importlib\nimportlib.import_module('pandas')")]),
    (unstated, [module("api", "tables = deferred('ingot.containers.table')")]),
    (unstated, [module("api", "import ingot.grid\ntables = deferred('ingot.containers.table')")]),
    (stray, [module("demo", "from rich.table import Table")]),
    (stray, [module("api", "import rich")]),
    (stray, [module("schema", "import numcodecs")]),
    (wandering, [module("codecs", "import ingot.errors", is_package=True)]),
    (wandering, [module("codecs", "def f(): ...", is_package=True)]),
    (wandering, [module("ingot", "if TYPE_CHECKING:\n    f()", is_package=True)]),
    (wandering, [module("ingot", "if FAST:\n    import ingot.api", is_package=True)]),
]


@pytest.mark.parametrize(("rule", "modules"), VIOLATIONS)
def test_rule_finds_a_violation(rule, modules):
    assert rule(modules) != []


ALLOWED = [
    module("errors", ""),
    module("native", "import importlib\nimportlib.import_module('x')\nimport ingot.errors"),
    module("codecs.codec", "from ingot.errors import FormatError"),
    module("codecs.numeric", "from ingot import native\nfrom ingot.codecs.codec import Filter"),
    module("blosc.chunk", "import numcodecs"),
    module("selection", "import ingot.grid"),
    module("grid", "import ingot.errors"),
    module("codecs.foreign", "def f():\n    import zfpy"),
    module("blosc", "from ingot.blosc.chunk import compress", is_package=True),
    module("schema", "import ingot.codecs.codec"),
    module("api", "from ingot.blosc import chunk"),
    module("ingot", "if TYPE_CHECKING:\n    from ingot.api import open", is_package=True),
    module("cli.app", "import rich, ingot"),
    module("cli.doctor", "from rich.table import Table"),
    module("containers.array", "import ingot.errors\nerrors = deferred('ingot.errors')"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_lets_the_rest_pass(rule):
    assert rule(ALLOWED) == []
