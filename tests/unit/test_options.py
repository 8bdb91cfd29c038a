"""Options refuse what they cannot mean."""

import pytest

import ingot
from ingot.options import Limits, Options


@pytest.mark.parametrize(
    "wrong",
    [{"threads": 0}, {"cache_bytes": -1}, {"durability": "none"}, {"verify": "sometimes"}],
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["chunk_bytes", "window_bytes", "device_window_bytes", "commit_chunks"]
)
def test_wrong_limits_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})


def test_threads_are_those_this_process_may_use() -> None:
    assert Options(threads=5).thread_count() == 5
    assert Options().thread_count() >= 1


@pytest.mark.parametrize("kind", [Options, Limits])
def test_help_describes_every_field(kind: type) -> None:
    assert kind.__doc__ is not None
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        assert f"- `{name}`: " in kind.__doc__


def test_options_are_options() -> None:
    with pytest.raises(ingot.errors.IngotError, match="options is 5"):
        ingot.array([1], options=5)  # type: ignore[arg-type]
    with pytest.raises(ingot.errors.IngotError, match="options is 5"):
        ingot.check("nothing", options=5)  # type: ignore[arg-type]
    for wrong in ({"threads": "x"}, {"cache_bytes": None}):
        with pytest.raises(ingot.errors.IngotError, match="not a whole number"):
            ingot.Options(**wrong)  # type: ignore[arg-type]
