"""Options refuse what they cannot mean."""

import pytest

from ingot.options import Limits, Options


@pytest.mark.parametrize(
    "wrong",
    [{"threads": 0}, {"cache_bytes": -1}, {"durability": "none"}, {"verify": "sometimes"}],
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["chunk_bytes", "window_bytes", "commit_chunks"])
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
