"""``ingot doctor``: which kernel runs and why, and the versions it runs with."""

import platform
from importlib.metadata import PackageNotFoundError, version

import ingot
from ingot import native
from ingot.cli.arguments import Json
from ingot.cli.output import print_json, print_pairs
from ingot.cli.parameters import Exit
from ingot.engine.kernel import PYTHON_ONLY
from ingot.errors import IngotError
from ingot.interop import cupy

__all__ = ["diagnose", "doctor"]


def doctor(json: Json = False) -> None:
    """Say which kernel runs, and why.

    Also with which codecs, and on what.
    """
    report = diagnose()
    if json:
        print_json(report)
    else:
        print_pairs(
            (name, "; ".join(value) if isinstance(value, list) else value or "none")
            for name, value in report.items()
        )
    if report["kernel"] is None:
        raise Exit(1)


def diagnose() -> dict[str, str | list[str] | None]:
    """Return what ``ingot doctor`` prints; the kernel is None if no kernel can be used.

    >>> diagnose()["ingot"] == ingot.__version__
    True
    """
    report: dict[str, str | list[str] | None] = {"ingot": ingot.__version__}
    try:
        chosen = native.choice()
        description = chosen.module.describe()
        report |= {
            "kernel": chosen.name,
            "reason": chosen.reason,
            "simd": description["simd"],
            "codecs": list(description["codecs"]),
        }
        if chosen.name == "native":
            report["left to python"] = list(PYTHON_ONLY)
    except IngotError as error:
        report |= {"kernel": None, "reason": str(error)}
    return report | {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": _version("numpy"),
        "numcodecs": _version("numcodecs"),
        "gpu": cupy.describe(),
        "platform": platform.platform(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
