"""Random walks of steps and of sentences, for tests that compare two forms of a model."""

import random

import torch

from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan, Sequence
from dragoman_model.transformer import Transformer
from tests.models import TINY_VOCAB_SIZE, tiny_config

OPTIONS = [
    DecodingOptions(),
    DecodingOptions(beam_size=3, num_hypotheses=2),
    DecodingOptions(),
    DecodingOptions(sampling_topk=5, num_hypotheses=2, seed=3),
    DecodingOptions(beam_size=2, repetition_penalty=1.3),
]


def make_transformer(dtype=torch.float32, **changes):
    torch.manual_seed(0)
    # Heads 32 wide, whose columns come in the smallest blocks.
    config = tiny_config(**{"num_decoder_layers": 2, "d_model": 64, **changes})
    transformer = Transformer(config).eval().requires_grad_(False)
    return transformer.to(dtype)


def make_source(rng, longest=40):
    return [*(rng.randrange(4, TINY_VOCAB_SIZE) for _ in range(rng.randrange(longest))), 2]


def make_sequences(count, rng=None):
    rng = rng or random.Random(2)
    return [
        Sequence(
            id=index,
            source_ids=tuple(make_source(rng)),
            max_length=rng.randint(5, 25),
            options=OPTIONS[index % len(OPTIONS)],
            lane=index % 3 // 2,
        )
        for index in range(count)
    ]


def walk(models, rng, num_steps, widths=(1, 3)):
    """Takes random steps, joins, leaves and branches with both models; yields their logits, and the first one's caches."""
    caches = [[model.empty_cache(width) for width in widths] for model in models]
    for _ in range(num_steps):
        for place, width in enumerate(widths):
            for joining in [rng.randint(1, 6)] if rng.random() < 0.3 else []:
                sources = [make_source(rng) for _ in range(joining)]
                for model, its_caches in zip(models, caches):
                    model.admit(its_caches[place], model.encode(sources), range(joining))
            num_sentences = caches[0][place].sentences.num_rows
            if num_sentences > 4 and rng.random() < 0.4:
                kept = rng.sample(range(num_sentences), rng.randrange(num_sentences))
                for its_caches in caches:
                    its_caches[place].select(kept)
            num_sentences = caches[0][place].sentences.num_rows
            if num_sentences and width > 1 and rng.random() < 0.5:
                sentence = rng.randrange(num_sentences)
                rows = [sentence * width + rng.randrange(width) for _ in range(width)]
                for its_caches in caches:
                    its_caches[place].branch(rows, range(sentence * width, (sentence + 1) * width))
        taking = [place for place, cache in enumerate(caches[0]) if cache.num_rows]
        if not taking:
            continue
        num_rows = sum(caches[0][place].num_rows for place in taking)
        token_ids = torch.tensor(
            [rng.randrange(TINY_VOCAB_SIZE) for _ in range(num_rows)], device=models[0].device
        )
        yield (
            *(
                model.step(token_ids, *(its_caches[place] for place in taking))
                for model, its_caches in zip(models, caches)
            ),
            caches[0],
        )


def translate(batch, sequences, rng):
    """Returns the hypotheses of all sequences that are not removed at random; they join at random steps."""
    waiting, running, results = list(sequences), set(), {}
    while waiting or running:
        admitted = [waiting.pop() for _ in range(min(rng.randint(0, 5), len(waiting)))]
        leaving = {index for index in sorted(running) if rng.random() < 0.02}
        running = (running - leaving) | {sequence.id for sequence in admitted}
        hold = frozenset([1]) if rng.random() < 0.2 else frozenset()
        out = batch.run(Plan(remove=tuple(leaving), admit=tuple(admitted), hold=hold))
        results |= {sentence.id: sentence.hypotheses for sentence in out.finished}
        running -= results.keys()
    return results


def tokens_of(results):
    return {index: [one.token_ids for one in hypotheses] for index, hypotheses in results.items()}
