"""The comparison of engines, on a tiny model: what is run, what is compared, what is written."""

import pytest
from agreement import Agreement, check_outputs, identical_share, scored_better
from engine_adapters import batches
from engine_process import EngineError, EngineProcess, Run
from engine_results import Results, Setting, Sizes, find_bars, rows
from engine_worker import until_eos
from engines import measure

from dragoman_model.checkpoint import load_model
from dragoman_model.translator import Translator
from tests.models import make_tiny_model

SIZES = Sizes(sentences=1000, single=128, slow=256, rounds=2, slow_rounds=1)
SOURCES = [[300, 301, 2], [302, 2], [303, 304, 305, 2]]


def run(tokens, seconds, latencies=(0.1,), outputs=()):
    return Run(seconds, list(latencies), tokens, 10**6, list(outputs))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.mark.parametrize(
    ("engine", "batch_size", "count"),
    [("dragoman", 64, 1000), ("dragoman", 1, 128), ("huggingface", 64, 256), ("huggingface", 1, 128)],
)
def test_slow_engines_and_single_sentences_get_fewer(engine, batch_size, count):
    assert SIZES.count(engine, Setting(1, batch_size)) == count


def test_bars_are_medians_of_each_rounds_ratio():
    results = Results()
    for ours, theirs in ((300, 200), (100, 200), (260, 200)):
        results.add("dragoman int8", Setting(1, 64), 1000, run(ours, 1.0))
        results.add("ctranslate2 int8", Setting(1, 64), 1000, run(theirs, 1.0))
    for ours, theirs in ((0.002, 0.001), (0.003, 0.001)):
        results.add("dragoman int8", Setting(1, 1), 128, run(5, 1.0, [ours]))
        results.add("ctranslate2 int8", Setting(1, 1), 128, run(5, 1.0, [theirs]))
    bars = find_bars(results, SIZES, Agreement(bleu_difference=-0.05))
    assert [bar.verdict for bar in bars] == ["aim", "missed", "not measured", "not measured", "aim"]
    assert bars[0].value == pytest.approx(1.3)
    assert bars[1].value == pytest.approx(2.5)
    assert bars[0].values == pytest.approx((1.5, 0.5, 1.3))


def test_ours_is_compared_with_hugging_face_on_the_same_sentences():
    results = Results()
    results.add("dragoman float32", Setting(1, 64), 1000, run(9000, 1.0))
    results.add("dragoman float32", Setting(1, 64), 256, run(500, 1.0))
    results.add("huggingface float32", Setting(1, 64), 256, run(200, 1.0))
    bar = find_bars(results, SIZES, Agreement())[3]
    assert bar.value == pytest.approx(2.5)


def test_rows_hold_medians_and_the_first_rounds_memory():
    results = Results()
    process = type("Process", (), {"engine": "dragoman", "precision": "int8", "name": "dragoman int8"})()
    for tokens, latencies, peak in ((100, [0.1, 0.3], 5), (300, [0.2, 0.4], 9), (200, [0.3, 0.5], 7)):
        results.add("dragoman int8", Setting(4, 8), 1000, Run(2.0, latencies, tokens, peak, []))
    (row,) = rows([process], [Setting(4, 8), Setting(1, 8)], SIZES, results, threads=1)
    assert row == {
        "engine": "dragoman", "precision": "int8", "beam_size": 4, "batch_size": 8, "threads": 1,
        "tokens_per_second": 100.0, "sentences_per_second": 500.0, "latency_p50_seconds": pytest.approx(0.3),
        "latency_p95_seconds": pytest.approx(0.39), "peak_memory_bytes": 5,
    }  # fmt: skip


class FakeProcess:
    def __init__(self, engine, precision, outputs):
        self.engine, self.precision, self.name, self._outputs = (
            engine,
            precision,
            f"{engine} {precision}",
            outputs,
        )

    def run(self, count, beam_size, batch_size, *, outputs, patience=1.0):
        outputs = self._outputs.get((beam_size, patience), self._outputs[1, 1.0])
        return Run(1.0, [], 9, 10**6, outputs, [-0.5] * len(outputs))


def agreement_of(theirs, ours_int8):
    processes = [
        FakeProcess("dragoman", "float32", {(1, 1.0): [[5, 6, 7, 8]] * 100}),
        FakeProcess("dragoman", "int8", {(1, 1.0): ours_int8}),
        FakeProcess("ctranslate2", "float32", theirs),
    ]
    references = ["5 6 7 8"] * 100
    return check_outputs(processes, 100, [1, 4], references, lambda ids: " ".join(map(str, ids)))


def test_engines_agree_where_nearly_all_translations_are_identical():
    same = [[5, 6, 7, 8]] * 100
    agreement = agreement_of({(1, 1.0): [[9, 2], *same[1:]]}, same)
    assert agreement.holds
    assert agreement.bleu_difference == pytest.approx(0)


@pytest.mark.parametrize(
    ("beam", "num_different"), [((1, 1.0), 2), ((4, 2.0), 4)], ids=["greedy", "beam with patience"]
)
def test_too_many_differences_are_told(beam, num_different):
    same = [[5, 6, 7, 8]] * 100
    theirs = {(1, 1.0): same, (4, 1.0): same, beam: [[9, 2]] * num_different + same[num_different:]}
    agreement = agreement_of(theirs, same)
    assert not agreement.holds
    assert any(line.startswith("DISAGREES") for line in agreement.lines)


def test_int8_that_translates_worse_is_told():
    same = [[5, 6, 7, 8]] * 100
    agreement = agreement_of({(1, 1.0): same}, [[9, 9, 9, 9]] * 10 + same[10:])
    assert not agreement.holds
    assert agreement.bleu_difference < -0.3


def test_batches_hold_each_sentence_once_and_those_of_like_length_together():
    sources = [[1], [1, 1, 1], [1, 1], [1, 1, 1, 1]]
    assert list(batches(sources, 2)) == [[3, 1], [2, 0]]
    assert list(batches(sources, 1)) == [[0], [1], [2], [3]]


def test_tokens_end_with_end_of_sentence():
    assert until_eos(["7", "8", "2", "0"], 2) == [7, 8, 2]
    assert until_eos([7, 8], 2) == [7, 8]


def test_the_share_of_identical_translations_is_counted():
    assert identical_share([[1, 2], [5, 2], [3, 2]], [[1, 2], [5, 2], [4, 2]]) == pytest.approx(2 / 3)
    assert identical_share([[1, 5, 2]], [[1, 2]]) == 0


def test_of_what_differs_it_is_told_who_scores_higher():
    ours = Run(1.0, [], 9, 1, [[5, 2], [6, 2], [7, 2]], [-0.1, -0.2, -0.3])
    theirs = Run(1.0, [], 9, 1, [[5, 2], [8, 2], [9, 2]], [-0.1, -0.4, -0.2])
    assert scored_better(ours, theirs) == (2, 1)


def test_a_translation_that_a_limit_cut_is_identical_as_far_as_it_goes():
    assert identical_share([[7, 7, 7], [7, 7]], [[7, 7], [7, 7, 8]]) == 1
    assert identical_share([[7, 7, 7]], [[7, 8]]) == 0


@pytest.mark.parametrize("engine", ["dragoman", "dragoman-operators"])
def test_an_engine_runs_in_a_process_of_its_own(model, engine):
    process = EngineProcess(engine, "float32", model, "cpu", 1)
    try:
        assert "PyTorch" in process.wait_until_ready()
        process.load(SOURCES, 2, 256)
        alone, together = (process.run(3, 1, batch_size, clock="cpu", outputs=True) for batch_size in (1, 2))
    finally:
        process.stop()
    assert alone.outputs == together.outputs
    assert len(alone.outputs) == 3
    assert all(latency > 0 for latency in (*alone.latencies, *together.latencies))
    assert together.num_tokens == sum(map(len, together.outputs))
    assert together.peak_memory_bytes > 10**7


def test_an_engine_that_cannot_be_loaded_says_why(model):
    process = EngineProcess("abacus", "float32", model, "cpu", 1)
    try:
        with pytest.raises(EngineError, match="abacus float32: KeyError"):
            process.wait_until_ready()
    finally:
        process.stop()


def test_ctranslate2_translates_as_ours_does(model, tmp_path):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: .[bench] has it")
    from peers import read_weights, write_ctranslate2

    write_ctranslate2(tmp_path, *read_weights(model))
    ours = Translator(load_model(model, device="cpu", precision="float32")).decode(list(map(tuple, SOURCES)))
    process = EngineProcess("ctranslate2", "float32", tmp_path, "cpu", 1)
    try:
        process.wait_until_ready()
        process.load(SOURCES, 2, 256)
        outputs = process.run(3, 1, 1, outputs=True).outputs  # in a batch it has one length limit for all
    finally:
        process.stop()
    assert outputs == [until_eos(best.token_ids, 2) for best, *_ in ours]


class CountingProcess:
    """Notes what it runs; breaks at its third run where it is to."""

    def __init__(self, engine, precision, breaks=False):
        self.engine, self.precision, self.name, self._breaks = (
            engine,
            precision,
            f"{engine} {precision}",
            breaks,
        )
        self.runs = []

    def run(self, count, beam_size, batch_size, *, clock="wall"):
        self.runs.append(count)
        if self._breaks and len(self.runs) == 3:
            raise EngineError(f"{self.name}: the process ended")
        return run(count, 1.0)


def test_rounds_take_engines_in_turn_and_slow_ones_in_fewer_of_them():
    ours, slow = CountingProcess("dragoman", "float32"), CountingProcess("huggingface", "float32")
    results = Results()
    measure([ours, slow], [Setting(1, 64), Setting(4, 8)], SIZES, "cpu", lambda text: None, results)
    # Warmed up in the first round; the 256 sentences of Hugging Face come beside all 1,000.
    assert ours.runs == [128, 256, 128, 1000, 16, 1000, 1000, 1000]
    assert slow.runs == [128, 256, 16, 256]
    assert len(results.of("dragoman float32", Setting(1, 64), 1000)) == 2
    assert len(results.of("dragoman float32", Setting(1, 64), 256)) == 1


def test_an_engine_that_breaks_is_left_out_and_the_others_go_on(capsys):
    ours, theirs = CountingProcess("dragoman", "int8"), CountingProcess("ctranslate2", "int8", breaks=True)
    results = Results()
    measure([theirs, ours], [Setting(1, 64)], SIZES, "cpu", lambda text: None, results)
    assert len(theirs.runs) == 3
    assert len(results.of("dragoman int8", Setting(1, 64), 1000)) == 2
    assert "left out: ctranslate2 int8" in capsys.readouterr().err
