"""What counts as the same translation, and as a tie, where searches are compared."""

import exactness
import pytest
from click.testing import CliRunner
from exactness import TOLERANCE, judge, judge_alone
from textbook import Found

from dragoman_model.plan import FinishReason, Hypothesis
from tests.models import make_tiny_model


def hypothesis(*tokens, log_probabilities=None):
    return Hypothesis(tokens, log_probabilities or (-1.0,) * len(tokens), FinishReason.EOS)


def found(*tokens, score=None):
    score = -float(len(tokens)) if score is None else score
    return Found(score / len(tokens), list(tokens), score)


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ([found(5, 2), found(6, 7, 2)], "identical"),
        ([found(5, 2, score=-2.00009), found(6, 7, 2)], "identical"),
        ([found(5, 2), found(6, 8, 2)], "tied"),
        ([found(5, 2), found(6, 8, 2, score=-3.0002)], "at_fault"),
        ([found(5, 2, score=-1.9998), found(6, 7, 2)], "at_fault"),
        ([found(6, 7, 2), found(5, 2)], "at_fault"),
        ([found(5, 2)], "at_fault"),
    ],
)
def test_hypotheses_differ_unless_they_tie_within_a_ten_thousandth(expected, verdict):
    assert judge((hypothesis(5, 2), hypothesis(6, 7, 2)), expected) == verdict


@pytest.mark.parametrize(
    ("alone", "tolerance", "verdict"),
    [
        (hypothesis(5, 6, 2), 0.0, "identical"),
        (hypothesis(5, 6, 2, log_probabilities=(-1.0, -1.0, -1.0000001)), 0.0, "at_fault"),
        (hypothesis(5, 6, 2, log_probabilities=(-1.0, -1.0, -1.0000001)), TOLERANCE, "identical"),
        (hypothesis(5, 7, 2), 0.0, "at_fault"),
        (hypothesis(5, 7, 2), TOLERANCE, "tied"),
        # They part at as good as equal tokens; what came of it needn't be alike.
        (hypothesis(5, 7, 2, log_probabilities=(-1.0, -1.00005, -3.0)), TOLERANCE, "tied"),
        (hypothesis(5, 7, 2, log_probabilities=(-1.0, -1.1, -3.0)), TOLERANCE, "at_fault"),
    ],
)
def test_to_the_last_bit_where_sums_run_in_one_order_and_elsewhere_up_to_ties(alone, tolerance, verdict):
    assert judge_alone((hypothesis(5, 6, 2),), (alone,), tolerance) == verdict


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def run(model, *arguments):
    command = [str(model), "--sentences", "3", "--beam-size", "2", "--max-length", "6", *arguments]
    return CliRunner().invoke(exactness.main, command)


@pytest.mark.parametrize("arguments", [(), ("--neighbours",)])
def test_searches_that_agree_are_a_success(model, arguments):
    result = run(model, *arguments)
    assert (result.exit_code, result.stdout) == (0, "3 sentences, beam 2: 3 identical, 0 ties, 0 at fault\n")


def test_a_sentence_at_fault_is_named_and_fails_the_run(model, monkeypatch):
    book = exactness.search_by_the_book

    def wrong_in_the_last(*arguments):
        answers.append(book(*arguments))
        return answers[-1] if len(answers) < 3 else [answers[-1][0]._replace(score=0.0)]

    answers = []
    monkeypatch.setattr(exactness, "search_by_the_book", wrong_in_the_last)
    result = run(model)
    assert result.exit_code == 1
    assert "2 identical, 0 ties, 1 at fault" in result.stdout
    assert "sentence 3: " in result.stderr
