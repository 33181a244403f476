import pytest

from dragoman_model.batch import RunningBatch
from dragoman_model.options import DecodingOptions
from dragoman_model.translation import prepare
from dragoman_model.translator import Translator
from tests.model.made_up import mixed_texts


@pytest.fixture(scope="module")
def translator(tiny_model):
    return Translator(tiny_model)


@pytest.fixture
def no_model_calls(monkeypatch):
    def refuse(self, plan):
        raise AssertionError("the model was called")

    monkeypatch.setattr(RunningBatch, "run", refuse)


@pytest.fixture
def decoded_rows(monkeypatch):
    """How many rows each step has decoded so far."""
    rows = []
    run = RunningBatch.run

    def watched(self, plan):
        out = run(self, plan)
        rows.append(out.decode.rows)
        return out

    monkeypatch.setattr(RunningBatch, "run", watched)
    return rows


# Many texts


def test_texts_come_back_in_order_each_as_if_alone(translator):
    texts = mixed_texts()
    together = translator.translate(texts)
    assert len(together) == len(texts)
    for text, translation in zip(texts, together, strict=True):
        alone = translator.translate([text])[0]
        assert translation.text == alone.text
        assert translation.score == pytest.approx(alone.score, abs=1e-3) if alone.score else not text.strip()
    assert len({translation.text for translation in together}) > 20


@pytest.mark.parametrize("max_batch_size", [1, 3, 7])
def test_the_batch_size_changes_no_translation(tiny_model, translator, max_batch_size):
    texts = mixed_texts(20)
    small = Translator(tiny_model, max_batch_size=max_batch_size).translate(texts)
    assert [t.text for t in small] == [t.text for t in translator.translate(texts)]


def test_never_more_rows_run_than_allowed(tiny_model, decoded_rows):
    Translator(tiny_model, max_batch_size=5).translate(mixed_texts())
    assert max(decoded_rows) == 5


def test_a_batch_without_rows_is_refused(tiny_model):
    with pytest.raises(ValueError, match="max_batch_size is 0"):
        Translator(tiny_model, max_batch_size=0)


def test_no_texts_are_no_translations(translator):
    assert translator.translate([]) == []


def test_progress_adds_up_to_all_sentences(translator):
    reports = []
    translations = translator.translate(
        mixed_texts(), on_progress=lambda done, total: reports.append((done, total))
    )
    num_sentences = sum(t.sentence_count for t in translations)
    assert [total for _, total in reports] == [num_sentences] * len(reports)
    done = [done for done, _ in reports]
    assert done == sorted(set(done))
    assert done[-1] == num_sentences


# Blank texts


@pytest.mark.usefixtures("no_model_calls")
@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t \u3000", " " * 10_000, "\u200b", "\ufeff\n\ufeff "])
def test_a_blank_text_comes_back_as_it_is_without_a_model_call(translator, text):
    translation = translator.translate([text])[0]
    assert translation.text == text
    assert translation.finish_reason is None
    assert translation.score is None
    assert translation.normalized_score is None
    assert translation.tokens == ()
    counts = (translation.source_token_count, translation.target_token_count, translation.sentence_count)
    assert counts == (0, 0, 0)


# Sentences


def test_what_nobody_sees_is_no_sentence_and_stays_where_it_was(tiny_model, translator):
    first, last = (translation.text for translation in translator.translate(["Lena.", "A dog."]))
    whole, spaced = translator.translate(["\u200b\nLena.\n\ufeff\r\nA dog.", "Lena.\u200b"])
    assert whole.text == f"\u200b\n{first}\n\ufeff\r\n{last}"
    assert whole.sentence_count == 2
    assert spaced.text == first  # within a sentence it is the model's to drop
    assert [sentence.start for sentence in prepare(tiny_model, "\ufeff\nLena.").split.sentences] == [2]


def test_a_text_of_several_sentences_is_translated_sentence_by_sentence(translator):
    one, two = "The cat sees you.", "A dog likes 15 apples!"
    both = translator.translate([f"{one}  {two}"])[0]
    alone = translator.translate([one, two])
    assert both.text == f"{alone[0].text}  {alone[1].text}"
    assert both.score == pytest.approx(alone[0].score + alone[1].score, abs=1e-3)
    assert both.target_token_count == sum(t.target_token_count for t in alone)
    assert both.source_token_count == sum(t.source_token_count for t in alone)


def test_a_text_can_be_taken_as_one_sentence(tiny_model, translator):
    text = "The cat sees you. A dog likes 15 apples!"
    assert len(prepare(tiny_model, text, sentences=False).source_ids) == 1
    assert translator.translate([text], sentences=False)[0].sentence_count == 1
    assert translator.translate([text])[0].sentence_count == 2


# Several hypotheses


def test_beams_give_as_many_alternatives_as_asked_for_and_the_same_translation(translator):
    texts = mixed_texts(12)
    one = translator.translate(texts, options=DecodingOptions(beam_size=4))
    three = translator.translate(texts, options=DecodingOptions(beam_size=4, num_hypotheses=3))
    assert [t.text for t in three] == [t.text for t in one]
    assert all(t.alternatives == () for t in one)
    for translation in three:
        assert len(translation.alternatives) == (3 if translation.text.strip() else 0)


@pytest.mark.parametrize("max_batch_size", [1, 4, 9])
def test_beams_keep_to_the_batch_size(tiny_model, translator, decoded_rows, max_batch_size):
    options = DecodingOptions(beam_size=4)
    texts = mixed_texts(8)
    small = Translator(tiny_model, max_batch_size=max_batch_size).translate(texts, options=options)
    assert max(decoded_rows) == max(4, max_batch_size // 4 * 4)
    assert [t.text for t in small] == [t.text for t in translator.translate(texts, options=options)]


# Prefixes


@pytest.mark.parametrize("beam_size", [1, 3])
def test_each_translation_starts_with_its_prefix(translator, beam_size):
    texts = ["The cat sees you. A dog likes 15 apples!", "Lena paints.", "\n", "Our teacher sees you."]
    prefixes = ["Die Katze", "", "Nichts", "Unser"]
    options = DecodingOptions(beam_size=beam_size)
    forced = translator.translate(texts, options=options, target_prefixes=prefixes)
    free = translator.translate(texts, options=options)
    assert forced[0].text.startswith("Die Katze")
    assert forced[3].text.startswith("Unser")
    assert forced[1].text == free[1].text
    assert forced[2].text == "\n"
    # The text's other sentences are none of the prefix's business.
    assert free[0].text != forced[0].text
    assert forced[0].text.endswith(translator.translate(["A dog likes 15 apples!"], options=options)[0].text)


def test_a_prefix_counts_in_the_score(translator):
    translation = translator.translate(["The cat sees you."], target_prefixes=["Die Katze"])[0]
    assert translation.score == pytest.approx(sum(token.log_probability for token in translation.tokens))
    assert translation.tokens[0].piece.startswith("▁D")
    assert translation.target_token_count == len(translation.tokens)
