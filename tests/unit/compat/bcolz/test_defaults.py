"""Defaults and parameters of the bcolz module."""

import pytest

from ingot.compat.bcolz.defaults import cparams, defaults, defaults_ctx, options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clevel": 2.5}, "must be an int"),
        ({"clevel": -1}, "positive integer"),
        ({"shuffle": 3}, "not allowed"),
        ({"shuffle": "yes"}, "must be an int"),
        ({"cname": "rar"}, "not available"),
        ({"quantize": -2}, "positive integer"),
    ],
)
def test_wrong_parameters_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cparams(**arguments)  # type: ignore[arg-type]


def test_defaults_come_back_after_a_block_and_after_an_error() -> None:
    before = repr(cparams())
    with defaults_ctx(cparams=cparams(clevel=1, cname="zstd"), vm="dask", out_flavor="numpy"):
        assert cparams().cname == "zstd"
        assert defaults.vm == defaults.eval_vm == "dask"
        cparams.setdefaults(clevel=9)
        assert cparams().clevel == 9
    assert repr(cparams()) == before
    with pytest.raises(KeyError), defaults_ctx(vm="python"):
        raise KeyError
    assert defaults.vm == "numexpr"


def test_cparams_may_be_a_dictionary() -> None:
    given = {"clevel": 3, "shuffle": 2, "cname": "lz4hc", "quantize": 0}
    with defaults_ctx(cparams=given):
        assert repr(cparams()) == "cparams(clevel=3, shuffle=2, cname='lz4hc', quantize=0)"
    with (
        pytest.raises(ValueError, match="must have the next entries"),
        defaults_ctx(cparams={"x": 1}),
    ):
        pass


def test_durability_is_that_of_bcolz_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options().durability == "process"
    monkeypatch.setattr(defaults, "durability", "full")
    assert options().durability == "full"
    assert not options().allow_pickle
