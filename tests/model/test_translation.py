import dataclasses
import random

from dragoman_model.plan import FinishReason, Hypothesis
from dragoman_model.translation import assemble, prepare

EOS, LENGTH = FinishReason.EOS, FinishReason.LENGTH


def results_for(model, translations):
    """Sentence results that spell given translations, the token at index i with log-probability −(i + 1)."""
    results = []
    for translation in translations:
        ids = tuple(model.tokenizer.encode_target(translation))
        results.append([Hypothesis(ids, tuple(-float(i + 1) for i in range(len(ids))), EOS)])
    return results


def test_sentences_are_rejoined_with_what_stood_between_them(tiny_model):
    text = "\n The cat sees you.  A dog likes 15 apples!\r\n\r\nLena paints the house?\t"
    prepared = prepare(tiny_model, text)
    assert [s.text for s in prepared.split.sentences] == [
        "The cat sees you.",
        "A dog likes 15 apples!",
        "Lena paints the house?",
    ]
    translation = assemble(tiny_model, prepared, results_for(tiny_model, ["Eins.", "Zwei!", "Drei?"]))
    assert translation.text == "\n Eins.  Zwei!\r\n\r\nDrei?\t"
    assert translation.sentence_count == 3


def test_scores_and_counts_add_up(tiny_model):
    prepared = prepare(tiny_model, "The cat sees you. Lena paints.")
    results = results_for(tiny_model, ["Die Katze mag dich.", "Lena malt."])
    translation = assemble(tiny_model, prepared, results)
    assert translation.score == sum(result.score for (result,) in results)
    num_tokens = sum(len(result.token_ids) for (result,) in results)
    assert translation.target_token_count == len(translation.tokens) == num_tokens
    assert translation.normalized_score == translation.score / num_tokens
    assert [token.log_probability for token in translation.tokens] == [
        p for (result,) in results for p in result.log_probabilities
    ]
    assert translation.source_token_count == sum(map(len, prepared.source_ids))


def test_leaving_tokens_out_changes_nothing_else(tiny_model):
    prepared = prepare(tiny_model, "\n The cat sees you.  Lena paints.\n")
    generator = random.Random(4)
    for _ in range(50):  # of any tokens: single bytes and special ones, too
        results = [
            tuple(
                Hypothesis(ids, tuple(-generator.random() for _ in ids), FinishReason.LENGTH)
                for ids in (
                    tuple(generator.randrange(tiny_model.config.target_vocab_size) for _ in range(9))
                    for _ in range(2)
                )
            )
            for _ in range(2)
        ]
        whole = assemble(tiny_model, prepared, results)
        without = assemble(tiny_model, prepared, results, with_tokens=False)
        bare = [dataclasses.replace(hypothesis, tokens=()) for hypothesis in whole.alternatives]
        assert without == dataclasses.replace(whole, tokens=(), alternatives=tuple(bare))


def test_the_spans_of_tokens_point_at_their_characters(tiny_model):
    prepared = prepare(tiny_model, "\n  The cat sees you.   Lena paints.\n")
    translation = assemble(tiny_model, prepared, results_for(tiny_model, ["Die 😀 mag Äpfel.", "Lena malt."]))
    assert translation.text == "\n  Die 😀 mag Äpfel.   Lena malt.\n"
    spelled = []
    for token in translation.tokens:
        if token.span is None:
            assert token.piece == "</s>"
            spelled.append("|")
        elif token.piece.startswith("<0x"):
            assert translation.text[slice(*token.span)] in "😀"
        else:
            assert translation.text[slice(*token.span)] == token.piece.strip("▁")
            spelled.append(translation.text[slice(*token.span)])
    assert "".join(spelled) == "DiemagÄpfel.|Lenamalt.|"


def test_one_sentence_at_its_limit_makes_the_text_so(tiny_model):
    prepared = prepare(tiny_model, "The cat sees you. Lena paints.")
    first, second = results_for(tiny_model, ["Die Katze.", "Lena."])
    assert assemble(tiny_model, prepared, [first, second]).finish_reason is EOS
    cut = dataclasses.replace(first[0], finish_reason=LENGTH)
    assert assemble(tiny_model, prepared, [[cut], second]).finish_reason is LENGTH


def test_alternatives_join_the_kth_of_each_sentence(tiny_model):
    prepared = prepare(tiny_model, "The cat sees you.  Lena paints.")
    first = results_for(tiny_model, ["Die Katze.", "Ein Hund.", "Lena."])
    second = results_for(tiny_model, ["Lena malt.", "Lena mag."])
    sentences = [[one for (one,) in first], [one for (one,) in second]]
    translation = assemble(tiny_model, prepared, sentences)
    assert [a.text for a in translation.alternatives] == ["Die Katze.  Lena malt.", "Ein Hund.  Lena mag."]
    best = translation.alternatives[0]
    assert (best.text, best.score, best.normalized_score, best.tokens) == (
        translation.text, translation.score, translation.normalized_score, translation.tokens,
    )  # fmt: skip
    worse = translation.alternatives[1]
    assert worse.score == sentences[0][1].score + sentences[1][1].score
    assert worse.target_token_count == len(worse.tokens)
    assert worse.normalized_score == worse.score / worse.target_token_count
