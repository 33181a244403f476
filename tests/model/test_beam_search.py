"""The batch's beam search against the textbook's, against an exhaustive one, and against itself in other company."""

import math
import random

import pytest
import torch
from benchmarks import textbook

from dragoman_model.batch import RunningBatch
from dragoman_model.beams import BeamSearch, normalized
from dragoman_model.config import MAX_LENGTH as LONGEST
from dragoman_model.options import MAX_LENGTH_PENALTY, DecodingOptions
from dragoman_model.plan import FinishReason, Plan, Sequence
from dragoman_model.transformer import Transformer
from tests.model.made_up import made_up_pairs
from tests.models import tiny_config

TIE = 1e-4
MAX_LENGTH = 8


@pytest.fixture(scope="module")
def sources(tiny_model):
    """40 tokenised sentences of many lengths."""
    rng = random.Random(3)
    texts = [pair.source for pair in made_up_pairs()]
    return [tuple(tiny_model.tokenizer.encode(" ".join(rng.sample(texts, 1 + i % 3)))) for i in range(40)]


@pytest.fixture(scope="module")
def logits_of(tiny_model):
    """The uncached logits of a source, remembered by prefix."""
    known = {}

    def logits(source_ids):
        compute = textbook.uncached_logits(tiny_model.transformer, source_ids)
        seen = known.setdefault(source_ids, {})

        def remembered(written):
            key = tuple(written)
            if key not in seen:
                seen[key] = compute(written)
            return seen[key]

        return remembered

    return logits


def decode_together(transformer, sequences):
    """Returns the hypotheses of each sequence, by id, all decoded in one batch."""
    batch = RunningBatch(transformer)
    found = {}
    plan = Plan(admit=tuple(sequences))
    while plan.admit or batch.num_rows:
        found.update((sentence.id, sentence.hypotheses) for sentence in batch.run(plan).finished)
        plan = Plan()
    return found


def textbook_arguments(sequence):
    options = sequence.options
    return {
        "beam": options.beam_size,
        "count": options.num_hypotheses,
        "max_length": sequence.max_length,
        "alpha": options.length_penalty,
        "prefix": sequence.prefix_ids,
        "min_length": options.min_length,
        "ngram": options.no_repeat_ngram_size,
        "penalty": options.repetition_penalty,
    }


def assert_same_hypotheses(actual, expected, alpha):
    """The same tokens and scores in the same order; where ranks tie, either order will do."""
    assert len(actual) == len(expected)
    assert [h.score for h in actual] == pytest.approx([found.score for found in expected], abs=TIE)
    for hypothesis, found in zip(actual, expected, strict=True):
        if list(hypothesis.token_ids) != found.tokens:
            ties = [other for other in expected if abs(other.rank - found.rank) < TIE]
            assert len(ties) > 1, f"{hypothesis.token_ids} instead of {found.tokens}, and no tie"


def check_against_textbook(tiny_model, logits_of, sources, prefixes=None, **options):
    options = DecodingOptions(**options)
    max_length = options.max_length or MAX_LENGTH
    sequences = [
        Sequence(
            id=index,
            source_ids=source_ids,
            max_length=max_length,
            options=options,
            prefix_ids=prefixes[index] if prefixes else (),
        )
        for index, source_ids in enumerate(sources)
    ]
    found = decode_together(tiny_model.transformer, sequences)
    reasons = set()
    for sequence in sequences:
        expected = textbook.search(
            logits_of(sequence.source_ids), tiny_model.config.eos_id, **textbook_arguments(sequence)
        )
        actual = found[sequence.id]
        assert_same_hypotheses(actual, expected, options.length_penalty)
        for hypothesis in actual:
            ends = hypothesis.token_ids[-1] == tiny_model.config.eos_id
            assert (hypothesis.finish_reason is FinishReason.EOS) == ends
            reasons.add(hypothesis.finish_reason)
    return found, reasons


# Against the textbook


@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 0.6, -0.7, 2.0])
def test_hypotheses_and_scores_are_the_textbooks(tiny_model, logits_of, sources, beam_size, length_penalty):
    found, reasons = check_against_textbook(
        tiny_model,
        logits_of,
        sources if length_penalty == 1 else sources[:16],
        beam_size=beam_size,
        num_hypotheses=(beam_size + 1) // 2,
        length_penalty=length_penalty,
    )
    assert len({best.token_ids for best, *_ in found.values()}) > 5
    if beam_size > 2 and length_penalty >= 1:
        assert reasons == set(FinishReason)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 3},
        {"min_length": 8},
        {"max_length": 1},
        {"max_length": 3},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 4.0},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_length": 4, "length_penalty": 0.5},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
def test_constraints_are_the_textbooks(tiny_model, logits_of, sources, beam_size, options):
    check_against_textbook(
        tiny_model, logits_of, sources[:12], beam_size=beam_size, num_hypotheses=beam_size, **options
    )


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize(
    "options", [{}, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "min_length": 5}]
)
def test_forced_prefixes_are_the_textbooks(tiny_model, logits_of, sources, beam_size, options):
    rng = random.Random(beam_size)
    prefixes = [tuple(rng.randrange(260, 380) for _ in range(index % 5)) for index in range(12)]
    found, _ = check_against_textbook(
        tiny_model,
        logits_of,
        sources[:12],
        prefixes,
        beam_size=beam_size,
        num_hypotheses=beam_size,
        **options,
    )
    for index, hypotheses in found.items():
        for hypothesis in hypotheses:
            assert hypothesis.token_ids[: len(prefixes[index])] == prefixes[index]


def test_scores_are_the_unmodified_models_whatever_modified_the_choice(tiny_model, logits_of, sources):
    options = DecodingOptions(beam_size=3, num_hypotheses=3, repetition_penalty=2.0, no_repeat_ngram_size=2)
    sequence = Sequence(id=0, source_ids=sources[0], max_length=MAX_LENGTH, options=options)
    for hypothesis in decode_together(tiny_model.transformer, [sequence])[0]:
        written, expected = [], []
        for token in hypothesis.token_ids:
            expected.append(textbook.log_softmax(logits_of(sources[0])(written))[token])
            written.append(token)
        assert hypothesis.log_probabilities == pytest.approx(expected, abs=TIE)


# Against all there is


@pytest.fixture(scope="module")
def toy():
    """A Transformer of six tokens."""
    torch.manual_seed(5)
    config = tiny_config(source_vocab_size=6, target_vocab_size=6)
    transformer = Transformer(config).eval()
    with torch.no_grad():
        transformer.output_weight.mul_(4.0)
    return transformer


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -1.0, 1.7])
@pytest.mark.parametrize("source_ids", [(3, 4, 2), (5, 2), (4, 4, 5, 3, 2)])
def test_a_beam_wide_enough_finds_the_best_of_all_translations(toy, length_penalty, source_ids):
    max_length, beam_size = 4, 125  # 5 × 5 × 5 unfinished prefixes
    everything = textbook.all_translations(
        textbook.uncached_logits(toy, source_ids),
        2,
        vocab_size=6,
        max_length=max_length,
        alpha=length_penalty,
    )
    assert len(everything) == 1 + 5 + 25 + 125 * 6
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=20, length_penalty=length_penalty)
    sequence = Sequence(id=0, source_ids=source_ids, max_length=max_length, options=options)
    assert_same_hypotheses(decode_together(toy, [sequence])[0], everything[:20], length_penalty)


def test_a_beam_wider_than_the_vocabulary_allows_returns_what_there_is(toy):
    options = DecodingOptions(beam_size=9, num_hypotheses=9)
    sequence = Sequence(id=0, source_ids=(3, 4, 2), max_length=1, options=options)
    hypotheses = decode_together(toy, [sequence])[0]
    assert sorted(h.token_ids[0] for h in hypotheses) == list(range(6))


def test_a_search_that_may_go_nowhere_ends(toy):
    for beam_size in (1, 3):
        options = DecodingOptions(beam_size=beam_size, no_repeat_ngram_size=1, min_length=20)
        sequence = Sequence(id=0, source_ids=(3, 4, 2), max_length=20, options=options)
        (best,) = decode_together(toy, [sequence])[0]
        assert sorted(best.token_ids) == list(range(6))
        assert best.token_ids[-1] == 2


@pytest.mark.parametrize("alpha", [-MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY])
def test_ranks_are_numbers_up_to_the_longest_length_and_the_widest_exponent(alpha):
    worse, better = (normalized(total, LONGEST, float(alpha)) for total in (-1e6, -1e-6))
    assert -math.inf < worse < better < 0


def test_a_child_takes_its_parents_row_where_it_can():
    search = BeamSearch(
        Sequence(id=0, source_ids=(5, 2), max_length=9, options=DecodingOptions(beam_size=3)), eos_id=2
    )

    def advance(*children):
        ranks = [-float(index) for index in range(len(children))]
        return search.advance(*zip(*children), ranks, ranks)

    assert advance((0, 5), (0, 6), (0, 7)) == [(0, 1), (0, 2)]
    assert advance((2, 8), (1, 9), (0, 10)) == []
    assert search.written() == [(5, 10), (6, 9), (7, 8)]
    assert advance((2, 11), (1, 12), (1, 13)) == [(1, 0)]
    assert search.written() == [(6, 9, 13), (6, 9, 12), (7, 8, 11)]


# Early stopping


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -0.7])
def test_stopping_early_loses_nothing(tiny_model, logits_of, sources, length_penalty):
    options = DecodingOptions(beam_size=4, num_hypotheses=2, length_penalty=length_penalty)
    sequences = [
        Sequence(id=i, source_ids=ids, max_length=MAX_LENGTH, options=options)
        for i, ids in enumerate(sources)
    ]
    found = decode_together(tiny_model.transformer, sequences)
    for sequence in sequences:
        expected = textbook.search(
            logits_of(sequence.source_ids), 2, stop_early=False, **textbook_arguments(sequence)
        )
        assert_same_hypotheses(found[sequence.id], expected, length_penalty)


def test_a_decided_search_stops_before_its_limit(tiny_model, sources):
    options = DecodingOptions(beam_size=4, length_penalty=0.0)
    batch = RunningBatch(tiny_model.transformer)
    plan = Plan(
        admit=tuple(
            Sequence(id=i, source_ids=s, max_length=60, options=options) for i, s in enumerate(sources)
        )
    )
    steps = {}
    for step in range(1, 61):
        for sentence in batch.run(plan).finished:
            steps[sentence.id] = step, len(sentence.best.token_ids)
        plan = Plan()
    assert len(steps) == len(sources)
    assert sum(step < 60 for step, _ in steps.values()) > 10
    assert all(step >= length for step, length in steps.values())


# Company


def random_options(rng):
    return rng.choice(
        [
            DecodingOptions(),
            DecodingOptions(min_length=4),
            DecodingOptions(beam_size=2, num_hypotheses=2, length_penalty=0.3),
            DecodingOptions(beam_size=4, num_hypotheses=3, no_repeat_ngram_size=2),
            DecodingOptions(beam_size=4),
            DecodingOptions(beam_size=8, repetition_penalty=1.4, length_penalty=-0.5),
            DecodingOptions(sampling_topk=0, seed=1, sampling_temperature=0.8),
            DecodingOptions(sampling_topk=9, num_hypotheses=4, seed=2, sampling_topp=0.9),
        ]
    )


def random_sequence(rng, sources, index):
    prefix_ids = tuple(rng.randrange(260, 380) for _ in range(rng.choice([0, 0, 0, 1, 3])))
    return Sequence(
        id=index,
        source_ids=rng.choice(sources),
        max_length=rng.randint(5, 16),
        options=random_options(rng),
        prefix_ids=prefix_ids,
    )


def test_a_sentence_gets_the_same_hypotheses_whatever_it_shares_the_batch_with(tiny_model, sources):
    rng = random.Random(11)
    sequences = [random_sequence(rng, sources, index) for index in range(200)]
    alone = {s.id: decode_together(tiny_model.transformer, [s])[s.id] for s in sequences}
    batch = RunningBatch(tiny_model.transformer)
    waiting, running, removed, together = list(sequences), {}, set(), {}
    while waiting or running:
        admitted = [waiting.pop() for _ in range(min(rng.randint(0, 7), len(waiting)))]
        leaving = [index for index in running if rng.random() < 0.01]
        removed.update(leaving)
        for index in leaving:
            del running[index]
        running.update((sequence.id, sequence) for sequence in admitted)
        out = batch.run(Plan(admit=tuple(admitted), remove=tuple(leaving)))
        if running:
            assert out.decode.rows == sum(s.options.num_rows for s in running.values())
        for sentence in out.finished:
            del running[sentence.id]
            together[sentence.id] = sentence.hypotheses
        assert batch.num_rows == sum(s.options.num_rows for s in running.values())
        assert batch.num_sentences == len(running)
    assert removed
    assert together.keys() == alone.keys() - removed
    for index, hypotheses in together.items():
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in alone[index]]
        for hypothesis, expected in zip(hypotheses, alone[index], strict=True):
            assert hypothesis.log_probabilities == pytest.approx(expected.log_probabilities, abs=TIE)


def test_asking_for_more_hypotheses_never_changes_the_best(tiny_model, sources):
    for length_penalty in (1.0, 0.0, -0.5):
        counts = {}
        for count in (1, 2, 4):
            options = DecodingOptions(beam_size=4, num_hypotheses=count, length_penalty=length_penalty)
            counts[count] = decode_together(
                tiny_model.transformer,
                [Sequence(id=i, source_ids=s, max_length=12, options=options) for i, s in enumerate(sources)],
            )
        for index in range(len(sources)):
            ids = [h.token_ids for h in counts[4][index]]
            assert len(set(ids)) == 4
            assert [h.token_ids for h in counts[2][index]] == ids[:2]
            assert [h.token_ids for h in counts[1][index]] == ids[:1]


def test_rows_and_caches_of_a_finished_or_removed_sentence_are_gone(tiny_model, sources):
    batch = RunningBatch(tiny_model.transformer)
    wide = DecodingOptions(beam_size=4, min_length=10)
    long, short = max(sources, key=len), min(sources, key=len)
    batch.run(
        Plan(
            admit=(
                Sequence(id=0, source_ids=long, max_length=12, options=wide),
                Sequence(id=1, source_ids=short, max_length=12, options=wide),
                Sequence(id=2, source_ids=short, max_length=1),
            )
        )
    )
    (group,) = batch._groups.values()
    assert batch.num_rows == group.cache.num_rows == 8
    assert group.cache.sentences.num_rows == 2  # once a sentence, not once a beam
    assert group.cache.sentences.lengths == [len(long), len(short)]
    batch.run(Plan(remove=(0,)))
    assert batch.num_rows == group.cache.num_rows == len(group.last_ids) == 4
    assert group.cache.sentences.num_rows == 1
    assert group.cache.sentences.lengths == [len(short)]
    batch.run(Plan(remove=(1,)))
    assert batch.num_rows == batch.num_sentences == 0
    assert not batch._groups
