import math

import pytest
import torch

from dragoman_model.errors import TrainingError
from dragoman_model.training.corpus import Pair
from dragoman_model.training.evaluate import DevSet, score_translations
from dragoman_model.transformer import Transformer
from tests.model.made_up import made_up_pairs
from tests.models import tiny_config

PAIRS = made_up_pairs()[::23]


def test_a_perfect_translation_scores_100_and_a_foreign_one_nothing():
    references = [pair.target for pair in PAIRS]
    perfect = score_translations(references, references)
    assert (perfect.bleu, perfect.chrf) == (pytest.approx(100), pytest.approx(100))
    foreign = score_translations(["日本"] * len(references), references)
    assert foreign.bleu < 1
    assert foreign.chrf < 1


def test_case_and_punctuation_count():
    references = [pair.target for pair in PAIRS]
    lowered = score_translations([reference.lower() for reference in references], references)
    assert lowered.bleu < 90
    assert score_translations([reference[:-1] for reference in references], references).bleu < 100


def test_signatures_say_how_scores_were_computed():
    scores = score_translations(["Hallo Welt."], ["Hallo Welt."])
    assert "nrefs:1|case:mixed" in scores.bleu_signature
    assert "tok:13a" in scores.bleu_signature
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed")


def test_a_dev_set_scores_translations_and_the_likelihood_of_references(tiny_model):
    dev = DevSet(PAIRS, tiny_model.tokenizer, tiny_model.config, max_batch_tokens=60)
    scores = dev.score(tiny_model.transformer)
    transformer, nll, num_tokens = tiny_model.transformer, 0.0, 0
    with torch.no_grad():
        for source, target in PAIRS:
            src_ids = torch.tensor([tiny_model.tokenizer.encode(source)])
            target_ids = tiny_model.tokenizer.encode_target(target)
            src_mask = torch.ones_like(src_ids, dtype=torch.bool)
            logits = transformer.decode(
                torch.tensor([[1, *target_ids[:-1]]]), transformer.encode(src_ids, src_mask), src_mask
            )[0]
            nll -= logits.log_softmax(-1)[torch.arange(len(target_ids)), target_ids].sum().item()
            num_tokens += len(target_ids)
    assert scores.nats_per_token == pytest.approx(nll / num_tokens, rel=1e-5)
    assert scores.bleu < 5
    assert math.isfinite(scores.chrf)


def test_scoring_leaves_random_numbers_and_weights_alone(made_up_tokenizer):
    config = tiny_config(dropout=0.3)
    transformer = Transformer(config).train()
    before = [parameter.detach().clone() for parameter in transformer.parameters()]
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    dev = DevSet(PAIRS[:3], made_up_tokenizer, config, max_batch_tokens=100)
    first, second = dev.score(transformer), dev.score(transformer)
    assert torch.rand(3).equal(expected)
    assert first == second
    assert all(
        p.equal(old) and p.grad is None for p, old in zip(transformer.parameters(), before, strict=True)
    )
    assert not transformer.training


def test_pairs_over_the_models_limits_are_left_out(made_up_tokenizer):
    config = tiny_config(max_source_length=40, max_target_length=40)
    long = Pair("you " * 60, "dich")
    transformer = Transformer(config)
    with_it, without_it = (
        DevSet(pairs, made_up_tokenizer, config, max_batch_tokens=100).score(transformer)
        for pairs in ([PAIRS[0], long], PAIRS[:1])
    )
    assert with_it == without_it


def test_a_dev_set_without_a_pair_that_fits_is_refused(made_up_tokenizer):
    with pytest.raises(TrainingError, match="no dev pair fits"):
        DevSet([Pair("you " * 60, "dich")], made_up_tokenizer, tiny_config(max_source_length=40), 100)
