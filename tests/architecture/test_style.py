"""Names and docstrings of the source, and the exact public surface."""

import ast
import re
import tomllib
from collections.abc import Iterable

import pytest

import ingot
from tests.architecture import public_api
from tests.architecture.source import ROOT, Module, package_modules

GRAB_BAGS = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}

PUBLIC = {
    "Array",
    "Group",
    "Limits",
    "Options",
    "Ragged",
    "Table",
    "View",
    "__version__",
    "array",
    "blosc",
    "check",
    "convert",
    "create",
    "errors",
    "formats",
    "group",
    "open",
    "ragged",
    "repair",
    "stores",
    "table",
}
"""Every name of the package itself. Adding one is a decision: change it here too."""


def scripts() -> list[Module]:
    return [Module(name, (ROOT / name).read_text(encoding="utf-8")) for name in ("run", "setup.py")]


def grab_bags(modules: Iterable[Module]) -> list[str]:
    """List the names that say nothing; a function may still measure a common length."""
    problems = []
    for module in modules:
        things = [*module.name.split("."), *(node.name for node in module.classes())]
        found = [name for name in things if GRAB_BAGS & set(words(name))]
        actions = [node.name for node in module.functions()]
        found += [name for name in actions if words(name)[-1:] and words(name)[-1] in GRAB_BAGS]
        problems += [f"{module.name}: {name}" for name in found]
    return problems


def words(name: str) -> list[str]:
    """Split a name into its words, lower case: ``ChunkManager`` is chunk, manager."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def undocumented(modules: Iterable[Module]) -> list[str]:
    problems = []
    for module in modules:
        if not ast.get_docstring(module.tree):
            problems.append(module.name)
        for node in module.public():
            overload = any("overload" in ast.unparse(mark) for mark in node.decorator_list)
            if not ast.get_docstring(node) and not overload:
                problems.append(f"{module.name}.{node.name}")
    return problems


def unbound(modules: Iterable[Module]) -> list[str]:
    return [
        f"{module.name}: __all__ names {name}, which is not there"
        for module in modules
        for name in module.exported() or ()
        if name not in module.bound()
    ]


def homonyms(modules: Iterable[Module]) -> list[str]:
    """List the classes that share a name, private ones included."""
    homes: dict[str, list[str]] = {}
    for module in modules:
        for node in module.classes():
            homes.setdefault(node.name, []).append(module.name)
    return [f"{name}: {', '.join(places)}" for name, places in homes.items() if len(places) > 1]


RULES = (grab_bags, homonyms, undocumented, unbound)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_keeps_the_rule(rule):
    assert rule(package_modules()) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_scripts_keep_the_rule(rule):
    assert rule(scripts()) == []


VIOLATIONS = [
    (grab_bags, Module("codecs.utils", "")),
    (grab_bags, Module("array", "class ChunkManager: ...")),
    (grab_bags, Module("array", "def chunk_helper(): ...")),
    (homonyms, Module("array", "class A: ...\ndef f():\n    class A: ...")),
    (undocumented, Module("array", "x = 1")),
    (undocumented, Module("array", "'''Doc.'''\ndef f(): ...")),
    (undocumented, Module("array", "'''Doc.'''\nclass A: ...")),
    (unbound, Module("array", "__all__ = ['f']\ndef g(): ...")),
]


@pytest.mark.parametrize(("rule", "module"), VIOLATIONS)
def test_rule_finds_a_violation(rule, module):
    assert rule([module]) != []


DOCUMENTED = """'''Doc.'''
__all__ = ["common_length", "LIMIT"]
LIMIT = 1
def common_length():
    '''Doc.

    More.'''
"""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_lets_the_rest_pass(rule):
    assert rule([Module("codecs.base64", DOCUMENTED)]) == []


BARE = re.compile(r"\b(?:raise|return) (?:ValueError|TypeError)\b")
# bcolz programs expect the errors of bcolz, the command line those of argparse, and the values of
# Zarr's fills are refused by a caller that knows the field.
OTHER_ERRORS = ("compat.", "cli.", "testing.", "formats.zarr.fills", "formats.zarr.v3_fills")


def test_errors_about_arguments_are_those_of_ingot():
    bare = [
        f"{module.name}: {line.strip()}"
        for module in package_modules()
        if not module.name.startswith(OTHER_ERRORS)
        for line in module.text.splitlines()
        if BARE.search(line)
    ]
    assert bare == [], "ArgumentError and ArgumentTypeError are IngotErrors as well"


def test_public_names_are_exact():
    assert set(ingot.__all__) == PUBLIC
    assert len(ingot.__all__) == len(PUBLIC)
    assert all(hasattr(ingot, name) for name in PUBLIC)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    crate = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8"))
    assert ingot.__version__ == project["project"]["version"] == crate["package"]["version"]


def test_public_api_is_the_recorded_one():
    recorded = ROOT / "tests" / "architecture" / "public_api.txt"
    assert list(public_api.lines()) == recorded.read_text(encoding="utf-8").splitlines()
