"""The benchmarks run, report what they ran, and judge by the bars."""

import doctest
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks import (
    arrays,
    cases,
    chunk_libraries,
    contest,
    encode,
    interpreters,
    page,
    places,
    regressions,
    scale,
    worker,
)
from benchmarks.__main__ import main
from benchmarks.measures import Measure, boxes, elements, planes, whole
from benchmarks.race import Effort, race, stopwatch
from benchmarks.samples import KINDS, Recipe, fill, parts, select, series
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, summarize
from benchmarks.verify import WrongResultError
from benchmarks.workloads import GROUPS, WORKLOADS, choose
from tests.cupy_double import use_double
from tests.host_device import needs_compiler

ROOT = Path(__file__).resolve().parents[2]
MODULES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
TINY = Effort(repetitions=1, seconds=1e-6)
QUICK = ["--quick", "--repetitions", "1", "--scale", "0.001", "--python", "here"]


@pytest.fixture(autouse=True)
def _zarr_as_it_was():
    """Leave zarr with the pipeline that it had: other tests run in the same process."""
    zarr = sys.modules.get("zarr") or pytest.importorskip("zarr")
    before = zarr.config.get("codec_pipeline.path")
    yield
    zarr.config.set({"codec_pipeline.path": before})


@pytest.fixture
def tiny(tmp_path):
    return Settings(tmp_path, TINY, scale=1e-6, say=lambda text: None)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__main__"])
def test_examples_hold(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


class TestRace:
    def test_contenders_take_turns(self):
        order = []

        def contender(name):
            return lambda loops: order.append(name) or 1.0

        race({"a": contender("a"), "b": contender("b")}, Effort(repetitions=3, seconds=0.5))
        assert "".join(order) == "ab" + "ab" * 3

    def test_best_turn_counts(self):
        turns = iter([9.0, 3.0, 2.0, 4.0])
        assert race({"a": lambda loops: next(turns)}, Effort(3, 0.5)) == {"a": 2.0}

    def test_time_is_that_of_one_call(self):
        asked = []

        def sampler(loops):
            asked.append(loops)
            return loops * 0.25

        assert race({"a": sampler}, Effort(1, seconds=1.0)) == {"a": 0.25}
        assert asked == [1, 1, 4]

    def test_slow_contenders_stop_after_two_turns(self):
        asked = []

        def sampler(loops):
            asked.append(loops)
            return 50.0

        race({"a": sampler}, Effort(repetitions=9, seconds=1.0, patience=20.0))
        assert len(asked) == 1 + 2

    def test_collector_rests_and_comes_back(self):
        seen = []
        race({"a": lambda loops: seen.append(gc.isenabled()) or 1.0}, Effort(1))
        assert set(seen) == {False}
        assert gc.isenabled()

    def test_preparation_is_not_counted(self, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr("time.perf_counter", lambda: clock[0])

        def advance(seconds):
            clock[0] += seconds

        sampler = stopwatch(lambda: advance(1.0), prepare=lambda: advance(100.0))
        assert sampler(3) == 3.0

    def test_another_clock_can_be_given(self):
        ticks = iter([1.0, 8.0])
        assert stopwatch(lambda: None, clock=lambda: next(ticks))(5) == 7.0


class TestSamples:
    @pytest.mark.parametrize("kind", KINDS)
    def test_series_has_the_size_that_is_asked_for(self, kind):
        assert len(series(kind, 4096)) == 4096

    def test_ints_grow_by_at_most_a_thousand(self):
        steps = np.diff(np.frombuffer(series("ints", 80_000), np.int64))
        assert steps.min() >= 0
        assert 900 < steps.max() <= 1000

    def test_walk_has_two_decimals(self):
        walk = np.frombuffer(series("walk", 8000))
        assert np.array_equal(walk, np.round(walk, 2))

    @pytest.mark.parametrize("content", ["field", "line"])
    def test_selections_agree_with_the_whole(self, content):
        recipe = Recipe((7, 5, 4), "<f8", (3, 2, 4), content=content)
        data = fill(recipe)
        keys = [(2,), (slice(1, 6), 3), (6, slice(0, 2), 1), (slice(0, 7), slice(0, 5), 2)]
        for key, found in zip(keys, select(recipe, keys), strict=True):
            assert np.array_equal(found, data[key])

    def test_line_is_evenly_spaced(self):
        recipe = Recipe((5, 4), "<f8", (2, 4), content="line")
        assert np.allclose(fill(recipe).ravel(), np.linspace(0, 1, 20), rtol=0, atol=1e-15)

    def test_field_is_halved_by_blosc(self):
        recipe = Recipe(arrays.RECIPE.chunks, "<f4", arrays.RECIPE.chunks)
        chunk = chunk_libraries.Ingot().encoding(fill(recipe).tobytes(), "lz4", 0)()
        assert 1.5 < recipe.nbytes / len(chunk) < 3

    def test_scaled_recipes_keep_their_chunks(self):
        small = arrays.RECIPE.scaled(1 / 64)
        assert small.chunks == arrays.RECIPE.chunks
        assert small.nbytes < arrays.RECIPE.nbytes / 30
        assert arrays.RECIPE.scaled(1) == arrays.RECIPE
        assert arrays.RECIPE.nchunks == 8 * 4 * 4

    def test_parts_are_the_rows_of_chunks(self):
        assert [part.shape for _, part in parts(Recipe((5, 2), "<f4", (2, 2)))] == [
            (2, 2),
            (2, 2),
            (1, 2),
        ]


class TestMeasures:
    RECIPE = arrays.RECIPE

    def test_boxes_lie_inside_one_chunk(self):
        for key in boxes(self.RECIPE):
            for part, chunk, length in zip(key, self.RECIPE.chunks, self.RECIPE.shape, strict=True):
                assert part.stop - part.start == 10
                assert part.start // chunk == (part.stop - 1) // chunk
                assert part.stop <= length

    @pytest.mark.parametrize("keys", [whole, boxes, elements, planes(0), planes(-1)])
    def test_keys_fit_the_array(self, keys):
        for key in keys(self.RECIPE):
            for part, length in zip(key, self.RECIPE.shape, strict=True):
                inside = range(length)[part]
                assert inside != range(0)

    def test_several_keys_share_the_time(self):
        measure = Measure("one element", "us", elements)
        assert measure.convert(16e-6, self.RECIPE) == pytest.approx(1.0)

    def test_words_stay(self):
        assert Measure("open", "us").convert("failed", self.RECIPE) == "failed"


class TestBars:
    @pytest.mark.parametrize(
        ("ours", "peer", "held"),
        [
            ((1.0, 100), (1.0, 100), True),
            ((1.0, 100), (0.91, 100), True),
            ((1.0, 100), (0.89, 100), False),
            ((1.0, 1005), (1.0, 1000), True),
            ((1.0, 1006), (1.0, 1000), False),
            ((1.0, 50), (0.5, 100), False),
        ],
    )
    def test_encode_needs_speed_and_size(self, ours, peer, held):
        comparison = encode.compare(
            {"ingot": ours[0], "x": peer[0]}, {"ingot": ours[1], "x": peer[1]}
        )
        assert comparison is not None
        assert comparison[3] is held

    def test_encode_is_held_against_the_fastest(self):
        times = {"ingot": 1.0, "slow": 5.0, "fast": 0.95}
        sizes = {"ingot": 100, "slow": 10, "fast": 100}
        assert encode.compare(times, sizes) == ("fast", 0.95, 1.0, True)

    @pytest.mark.parametrize(("value", "held"), [(2100.0, False), (2600.0, True)])
    def test_full_read_must_be_a_fifth_faster(self, value, held):
        results = {contest.OURS: {"full read": value}, "a": {"full read": 2000.0}}
        assert arrays.judge(arrays.READS[0], results, contest.OURS) == (value / 2000, held)

    def test_smaller_times_are_better(self):
        results = {
            contest.OURS: {"open": 5.0},
            "a": {"open": 10.0},
            "b": {"open": 4.0},
            "c": {"open": "not installed"},
        }
        assert contest.find_best_peer(arrays.OPEN, results) == "b"
        assert arrays.judge(arrays.OPEN, results, contest.OURS) == (0.8, False)

    def test_bars_are_left_open_below_full_size(self, tmp_path):
        assert Settings(tmp_path).verdict(False) is False
        assert Settings(tmp_path, scale=0.5).verdict(False) is None


class TestChunkLibraries:
    @pytest.mark.parametrize("codec", ["lz4", "zstd", "blosclz", "zlib"])
    def test_all_write_blocks_of_the_size_that_is_asked_for(self, codec):
        data = series("walk", 1 << 20)
        with chunk_libraries.one_thread():
            for name, library in chunk_libraries.chunk_libraries().items():
                if library is not None:
                    chunk = library.encoding(data, codec, encode.BLOCKSIZE)()
                    assert chunk_libraries.read_blocksize(chunk) == encode.BLOCKSIZE, name
                    assert library.decoding(chunk)() == data, name

    def test_other_block_sizes_are_refused(self):
        chunk = chunk_libraries.Ingot().encoding(bytes(1 << 20), "lz4", 1 << 16)()
        with pytest.raises(WrongResultError, match="65536 bytes, 131072 were asked for"):
            encode.check_blocks({"ingot": chunk}, 1 << 20)

    def test_global_switches_are_set_back(self):
        blosc2 = pytest.importorskip("blosc2")
        before = blosc2.set_nthreads(3)
        try:
            with chunk_libraries.one_thread():
                assert blosc2.nthreads == 1
            assert blosc2.nthreads == 3
        finally:
            blosc2.set_nthreads(before)


class TestCases:
    RECIPE = Recipe((20, 12, 16), "<f4", (10, 12, 8))

    @pytest.fixture
    def path(self, tmp_path):
        path = str(tmp_path / "x.zarr")
        cases.write_in_parts(cases.Case("zarr2", "write", path, self.RECIPE))
        return path

    def case(self, path, **changes):
        keys = whole(self.RECIPE)
        expected = zlib.crc32(fill(self.RECIPE).tobytes())
        return cases.Case("zarr2", "read", path, self.RECIPE, keys, changes.get("digest", expected))

    def test_right_data_are_timed(self, path):
        with cases.sampling(self.case(path)) as sampler:
            assert sampler(2) > 0

    def test_wrong_data_are_refused(self, path):
        with (
            pytest.raises(WrongResultError, match="zarr2 reads other data"),
            cases.sampling(self.case(path, digest=1)),
        ):
            pass

    def test_worker_times_the_same_case(self, path):
        with places.Worker(sys.executable) as process:
            assert process.libraries()["zarr2"][1] is None
            with process.sampling(self.case(path)) as sampler:
                assert sampler(2) > 0
            with pytest.raises(places.WorkerError, match="WrongResultError: zarr2 reads other"):
                process.ask("begin", case=cases.pack(self.case(path, digest=1)))
            assert process.ask("libraries")

    def test_worker_that_dies_is_an_error(self):
        process = places.Worker(sys.executable)
        process.libraries()
        process._process.kill()
        process._process.wait()
        with pytest.raises(places.WorkerError):
            process.ask("libraries")
        process.stop()

    def test_memory_of_a_read_counts_the_result(self, tmp_path):
        recipe = Recipe((400, 125, 125), "<f4", (50, 125, 125))
        path = str(tmp_path / "large.zarr")
        cases.write_in_parts(cases.Case("zarr2", "write", path, recipe))
        case = cases.Case("zarr2", "read", path, recipe, whole(recipe))
        with places.Worker(sys.executable) as process:
            before, peak = process.measure_memory(case)
        assert peak - before > recipe.nbytes / 2

    def test_memory_begins_anew_in_a_child(self):
        ballast = np.ones(200 << 17)
        assert worker.peak_memory() > ballast.nbytes
        code = "from benchmarks.worker import peak_memory; print(peak_memory())"
        answer = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
        assert int(answer) < ballast.nbytes


class TestInterpreters:
    @pytest.fixture
    def old_python(self, monkeypatch, tmp_path):
        """A Python too old for zarr, nothing but ``tmp_path`` on the path, no environment yet."""
        monkeypatch.setattr(interpreters.sys, "version_info", (3, 11, 7))
        monkeypatch.setattr(interpreters, "ENVIRONMENT", tmp_path / "environment")
        monkeypatch.setenv("PATH", str(tmp_path))

    def shim(self, folder, name, command):
        script = folder / name
        script.write_text(f"#!/bin/sh\n{command}\n")
        script.chmod(0o755)
        return str(script)

    def test_interpreter_with_zarr_is_taken_as_it_is(self):
        assert interpreters.find_peer_python(sys.executable, print) == sys.executable

    @pytest.mark.skipif(os.name == "nt", reason="needs a shell")
    def test_shims_with_nothing_behind_them_are_passed_over(self, old_python, tmp_path):
        self.shim(tmp_path, "python3.13", "exit 127")
        said = []
        assert interpreters.find_peer_python("auto", said.append) is None
        assert said == [
            "no Python 3.12 or later was found: zarr runs in this one, in an older version"
        ]

    @pytest.mark.skipif(os.name == "nt", reason="needs a shell")
    def test_newest_that_works_gets_an_environment(self, old_python, monkeypatch, tmp_path):
        self.shim(tmp_path, "python3.14", "exit 127")
        works = self.shim(tmp_path, "python3.13", f'exec "{sys.executable}" "$@"')
        self.shim(tmp_path, "python3.12", f'exec "{sys.executable}" "$@"')
        monkeypatch.setattr(interpreters, "_make", lambda python, say: f"made from {python}")
        assert interpreters.find_peer_python("auto", print) == f"made from {works}"

    @pytest.mark.skipif(os.name == "nt", reason="needs a shell")
    def test_failing_to_make_one_is_said_and_survived(self, old_python, tmp_path):
        broken = self.shim(tmp_path, "broken", 'echo "no venv here" >&2; exit 1')
        said = []
        assert interpreters.find_peer_python(broken, said.append) is None
        assert "no venv here" in said[-1]


class TestContest:
    def test_a_failing_library_leaves_the_race_to_the_others(self, tiny, tmp_path):
        recipe = Recipe((4, 4), "<f4", (2, 4))
        path = str(tmp_path / "x.zarr")
        here = places.Here()
        here.write(cases.Case("zarr2", "write", path, recipe))
        found = {
            "works": (here, cases.Case("zarr2", "open", path, recipe)),
            "fails": (here, cases.Case("zarr2", "open", path + "-not-there", recipe)),
        }
        times = contest.time_cases(tiny, found)
        assert times["fails"] == contest.FAILED
        assert times["works"] > 0

    def test_missing_peers_say_so(self, tiny, monkeypatch):
        monkeypatch.setattr("benchmarks.array_libraries.installed", lambda name: name == "ingot")
        monkeypatch.setattr("benchmarks.chunk_libraries.installed", lambda name: name != "blosc2")
        (table,) = WORKLOADS["overhead"](tiny)
        rows = table.as_dict()["rows"]
        assert {row["blosc2 us"] for row in rows} == {"not installed"}
        assert all(row["ingot us"] > 0 for row in rows)
        table = arrays.run(tiny)[0]
        found = {row["library"]: row["full read MB/s"] for row in table.as_dict()["rows"]}
        assert found["tensorstore"] == "not installed"


class TestPage:
    PAGE = "head\n<!-- begin decode -->\nold\n<!-- end decode -->\ntail\n"

    def test_section_is_replaced_and_the_rest_stays(self, tmp_path):
        path = tmp_path / "speed.md"
        path.write_text(self.PAGE)
        table = Table("decode", "How fast", (Column("who"), Column("MB/s", ".1f")), (("we", 2.04),))
        page.update(path, {"decode": [table]}, {"python": "3.13.0"})
        text = path.read_text()
        assert text.startswith("head\n<!-- begin decode -->\n")
        assert text.endswith("\n<!-- end decode -->\ntail\n")
        assert "old" not in text
        assert "| who | MB/s |\n| --- | --: |\n| we | 2.0 |" in text
        assert "- python: 3.13.0" in text
        assert list(tmp_path.iterdir()) == [path]

    def test_page_without_the_section_is_left_alone(self, tmp_path):
        path = tmp_path / "speed.md"
        path.write_text(self.PAGE)
        with pytest.raises(page.PageError, match="begin encode"):
            page.update(path, {"decode": [], "encode": []}, {})
        assert path.read_text() == self.PAGE

    def test_every_workload_has_its_section(self):
        text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
        for name in WORKLOADS:
            assert page.replace_section(text, name, "new") != text
            assert f"`{name}`" in text

    def test_summary_counts_and_names_what_is_missed(self):
        columns = (Column("who"), Column("bar"))
        table = Table("decode", "", columns, (("a", True), ("b", False), ("c", None)))
        assert summarize([table]) == "bars: 1 ok, 1 MISSED\n  decode: b MISSED"


FACTS = {"processor": "A, 2 cores", "python": "3.13.0", "ingot": "0.1.0, native kernel"}


class TestRegressions:
    TITLES = ("job", "ingot us", "blosc2 us", "ingot / blosc2", "files")

    def table(self, *rows):
        return Table("arrays", "Arrays", tuple(Column(title, ".1f") for title in self.TITLES), rows)

    def compared(self, before, now):
        stored = {"arrays": {"facts": FACTS, "tables": [self.table(before).as_dict()]}}
        found = regressions.compare(stored, {"arrays": [self.table(now)]})
        return [(one.column, one.before, one.now) for one in found]

    def test_a_time_that_grew_and_a_ratio_that_fell_are_found(self):
        found = self.compared(("box", 10.0, 30.0, 3.0, 7), ("box", 12.0, 30.0, 2.5, 7))
        assert found == [("ingot us", 10.0, 12.0), ("ingot / blosc2", 3.0, 2.5)]

    @pytest.mark.parametrize("now", [11.4, 10.0, 2.0])
    def test_what_is_within_the_tolerance_or_better_is_not(self, now):
        assert self.compared(("box", 10.0, 30.0, 3.0, 7), ("box", now, 30.0, 3.0, 7)) == []

    def test_figures_of_peers_and_counts_do_not_matter(self):
        assert self.compared(("box", 10.0, 30.0, 3.0, 7), ("box", 10.0, 90.0, 3.0, 70)) == []
        assert self.compared(("zarr 3.1", 10.0, 1, 1, 1), ("zarr 3.1", 90.0, 1, 1, 1)) == []

    def test_a_format_is_no_peer(self):
        assert self.compared(("zarr3, lz4", 10.0, 1, 1, 1), ("zarr3, lz4", 90.0, 1, 1, 1)) != []
        assert self.compared(("bcolz, lz4", 10.0, 1, 1, 1), ("bcolz, lz4", 90.0, 1, 1, 1)) != []

    def test_rows_that_are_new_have_nothing_to_compare_with(self):
        assert self.compared(("box", 10.0, 1, 1, 1), ("plane", 90.0, 1, 1, 1)) == []
        assert regressions.compare({}, {"arrays": [self.table(("box", 10.0, 1, 1, 1))]}) == []

    def test_results_are_kept_for_each_machine_kernel_and_scale(self, tmp_path):
        files = {
            regressions.results_file(tmp_path, {**FACTS, **change}, scale)
            for change in ({}, {"processor": "B"}, {"ingot": "0.1.0, python kernel"})
            for scale in (1.0, 0.1)
        }
        assert len(files) == 6
        newer = {**FACTS, "ingot": "0.2.0, native kernel", "date": "later"}
        assert regressions.results_file(tmp_path, newer, 1.0) in files

    def test_workloads_that_did_not_run_keep_their_results(self, tmp_path):
        path = tmp_path / "results" / "a.json"
        first, second = self.table(("box", 1.0, 1, 1, 1)), self.table(("box", 2.0, 1, 1, 1))
        regressions.store(path, {"arrays": [first], "tables": [first]}, FACTS)
        regressions.store(path, {"arrays": [second]}, FACTS)
        stored = regressions.load(path)
        assert stored["arrays"]["tables"][0]["rows"][0]["ingot us"] == 2.0
        assert stored["tables"]["tables"][0]["rows"][0]["ingot us"] == 1.0


class TestCommand:
    def test_groups_name_workloads(self):
        for members in GROUPS.values():
            assert set(members) <= set(WORKLOADS)
        assert choose([]) == list(WORKLOADS)

    def test_unknown_names_are_refused(self, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["speed"])
        assert stop.value.code == 2
        assert "no workload 'speed'" in capsys.readouterr().err

    def test_a_run_is_compared_with_the_one_that_was_kept(self, tmp_path, capsys, monkeypatch):
        figures = iter([10.0, 10.0, 20.0])

        def workload(settings):
            columns = (Column("job"), Column("ingot us", ".1f"))
            return [Table("overhead", "Calls", columns, (("call", next(figures)),))]

        monkeypatch.setitem(WORKLOADS, "overhead", workload)
        command = ["overhead", *QUICK, "--results", str(tmp_path), "--compare"]
        assert main([*command, "--store"]) == 0
        assert "no earlier results of overhead on this machine" in capsys.readouterr().out
        assert main(command) == 0
        assert "regressions: 0" in capsys.readouterr().out
        assert main(command) == 1
        assert "overhead: call, ingot us: 10 -> 20 (2.00 times)" in capsys.readouterr().out

    @pytest.mark.slow
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_workload_runs(self, name, tmp_path, capsys):
        report, document = tmp_path / "speed.json", tmp_path / "speed.md"
        document.write_text((ROOT / "docs" / "speed.md").read_text(encoding="utf-8"))
        arguments = [name, *QUICK, "--json", str(report), "--markdown", str(document)]
        assert main(arguments) == 0
        found = json.loads(report.read_text())
        assert found["facts"]["command"].startswith(f"./run bench {name} ")
        assert {table["name"] for table in found["tables"]} == {name}
        for table in found["tables"]:
            assert table["rows"]
            assert "failed" not in {value for row in table["rows"] for value in row.values()}
            assert table["title"] in document.read_text()
        assert capsys.readouterr().out.rstrip().endswith("bars: none judged")


@pytest.mark.slow
@needs_compiler
def test_the_workload_of_a_gpu_runs_on_a_double(capsys):
    with use_double():
        assert main(["gpu", *QUICK]) == 0
    out = capsys.readouterr().out
    assert all(
        words in out for words in ("Kernels alone", "From the page cache", "Batches of 64 random")
    )


def test_a_simulation_counts_what_its_protocol_does() -> None:
    # Without failures and conflicts the requests follow from the protocol.
    alone = scale.simulate("append, a commit each", 1, 0.03, 0.0, 60)
    assert (alone.retries, alone.wasted) == (0, 0)
    # Two GET, one HEAD, the chunks, and four PUT: as a test of object stores counts them.
    assert alone.requests / alone.commits == pytest.approx(7 + scale.BATCH, rel=0.02)
    change = scale.simulate("change chunks, a commit each", 1, 0.03, 0.0, 60)
    # Three GET and three PUT; the chunks are staged, compared, put in place and removed.
    assert change.requests / change.commits == pytest.approx(6 + 4 * scale.BATCH, rel=0.02)
    many = scale.simulate("append, a commit each", 50, 0.03, 0.05, 60)
    assert many.wasted > 0
    assert many.retries / many.requests == pytest.approx(0.05, abs=0.01)
    staged = scale.simulate("staged, one commit at the end", 50, 0.03, 0.05, 60)
    assert staged.commits > 10 * many.commits
    assert scale.simulate("staged, one commit at the end", 50, 0.03, 0.05, 60) == staged


def test_programs_of_their_own_print_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--workers", "2", "--seconds", "5", "--no-costs"]) == 0
    assert capsys.readouterr().out.count("\n") == 5


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "a figure that is worse by more than 15% is listed" in " ".join(
        capsys.readouterr().out.split()
    )
