import pytest
import torch

from dragoman_model.cache import DecoderCache, SentenceCache
from dragoman_model.errors import CacheFullError

L, H, K = 2, 3, 5


def make_cache(lengths=(4, 2, 7), max_length=50, seed=0):
    """A cache of sources of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    columns = max(lengths)
    cross = torch.randn(L, 2, len(lengths), H, columns, K, generator=generator)
    mask = torch.arange(columns) < torch.tensor(lengths)[:, None]
    return DecoderCache(SentenceCache(cross, mask), max_length)


def take_step(cache, number):
    """Appends keys that say which step and row they are of (step × 100 + row), values their negatives.

    Returns the keys that each row may attend to in this step, as such marks, row by row.
    """
    marks = number * 100 + torch.arange(cache.num_rows, dtype=torch.float32)
    mask = cache.rows.mask()[:, 0, 0]
    for layer in range(L):
        appended = (marks + layer / 10)[:, None, None, None].expand(-1, H, 1, K)
        keys, values = cache.rows.append(layer, appended, -appended)
        assert keys.shape == (cache.num_rows, H, mask.size(1), K)
        assert values.equal(-keys)
    cache.rows.advance()
    return [
        [round(mark - layer / 10) for mark in keys[row, 0, mask[row], 0].tolist()] for row in range(len(mask))
    ]


def test_a_new_cache_is_at_step_zero():
    cache = make_cache()
    assert cache.num_rows == 3
    assert cache.sentences.num_columns == 7
    assert cache.rows.lengths.tolist() == [0, 0, 0]
    assert cache.rows.mask().tolist() == [[[[True]]]] * 3
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [4, 2, 7]


def test_steps_come_back_in_order():
    cache = make_cache()
    take_step(cache, 1)
    take_step(cache, 2)
    assert take_step(cache, 3) == [[100, 200, 300], [101, 201, 301], [102, 202, 302]]
    assert cache.rows.lengths.tolist() == [3, 3, 3]
    assert cache.rows.mask().shape == (3, 1, 1, 4)


def test_growing_keeps_what_is_held():
    cache = make_cache(max_length=40)
    for number in range(1, 41):  # past several enlargements, to the limit
        held = take_step(cache, number)
    assert held == [[number * 100 + row for number in range(1, 41)] for row in range(3)]


@pytest.mark.parametrize("max_length", [1, 3, 16, 17])
def test_a_step_past_the_limit_is_refused_and_says_the_limit(max_length):
    cache = make_cache(max_length=max_length)
    for mark in range(max_length):
        take_step(cache, mark)
    with pytest.raises(CacheFullError, match=f"{max_length} steps"):
        take_step(cache, 99)
    assert cache.rows.lengths.tolist() == [max_length] * 3


def test_rows_that_join_start_behind_the_others_at_step_zero():
    cache, late = make_cache(), make_cache(lengths=(9, 1), seed=1)
    take_step(cache, 1)
    take_step(cache, 2)
    cross_before, cross_late = cache.cross(1)[0].clone(), late.cross(1)[0].clone()
    cache.concatenate(late)
    assert cache.num_rows == 5
    assert cache.rows.lengths.tolist() == [2, 2, 2, 0, 0]
    assert cache.sentences.num_columns == 9
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [4, 2, 7, 9, 1]
    assert cache.cross(1)[0][:3, :, :7].equal(cross_before)
    assert cache.cross(1)[0][3:].equal(cross_late)
    assert not cache.cross_mask()[:3, 0, 0, 7:].any()
    assert take_step(cache, 3) == [[100, 200, 300], [101, 201, 301], [102, 202, 302], [303], [304]]


def test_joining_a_longer_batch_pads_the_one_that_is_there():
    short, long = make_cache(lengths=(2,)), make_cache(lengths=(3, 5))
    for mark in (1, 2, 3):
        take_step(long, mark)
    take_step(short, 7)
    short.concatenate(long)
    assert short.rows.lengths.tolist() == [1, 3, 3]
    assert take_step(short, 8) == [[700, 800], [100, 200, 300, 801], [101, 201, 301, 802]]
    assert short.sentences.num_columns == 5


def test_selecting_reorders_and_lets_go_of_columns_no_row_uses():
    cache, late = make_cache(), make_cache(lengths=(3,), seed=1)
    for mark in (1, 2, 3):
        take_step(cache, mark)
    cache.concatenate(late)
    take_step(cache, 4)
    keys = cache.cross(0)[0].clone()
    cache.select(torch.tensor([3, 1]))
    assert cache.rows.lengths.tolist() == [1, 4]
    assert cache.sentences.num_columns == 3
    assert cache.cross(0)[0].equal(keys[[3, 1], :, :3])
    assert take_step(cache, 5) == [[403, 500], [101, 201, 301, 401, 501]]
    cache.select(torch.tensor([0]))
    assert cache.rows.mask().shape == (1, 1, 1, 3)  # the long row's columns are gone
    assert take_step(cache, 6) == [[403, 500, 600]]


def test_rows_can_be_selected_more_than_once():
    cache = make_cache()
    take_step(cache, 1)
    cache.select(torch.tensor([1, 1, 0]))
    assert take_step(cache, 2) == [[101, 200], [101, 201], [100, 202]]
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [2, 2, 4]


def test_selecting_nothing_leaves_an_empty_cache_that_rows_can_join():
    cache = make_cache()
    take_step(cache, 1)
    cache.select(torch.empty(0, dtype=torch.long))
    assert cache.num_rows == 0
    assert cache.sentences.num_columns == 0
    assert cache.rows.mask().shape == (0, 1, 1, 1)
    cache.concatenate(make_cache(lengths=(5,)))
    assert take_step(cache, 2) == [[200]]
    assert cache.sentences.num_columns == 5


def test_the_limit_counts_each_rows_own_steps():
    cache = make_cache(max_length=3)
    take_step(cache, 1)
    take_step(cache, 2)
    cache.concatenate(make_cache(lengths=(2,), max_length=3))
    take_step(cache, 3)
    cache.select(torch.tensor([3]))  # the rows at their limit leave
    take_step(cache, 4)
    assert take_step(cache, 5) == [[303, 400, 500]]
    with pytest.raises(CacheFullError):
        take_step(cache, 6)


# Several rows a sentence


def make_wide_cache(width=2, **changes):
    narrow = make_cache(**changes)
    return narrow.at_step_zero(torch.arange(narrow.num_rows), width)


def test_rows_of_a_sentence_share_its_source():
    cache = make_wide_cache(width=4)
    assert cache.num_rows == 12
    assert cache.cross(0)[0].size(0) == cache.cross_mask().size(0) == 3
    assert cache.rows.lengths.tolist() == [0] * 12


def test_a_cache_can_start_with_some_sentences_of_another():
    narrow = make_cache(lengths=(4, 2, 7, 3))
    cache = narrow.at_step_zero(torch.tensor([3, 0]), 2)
    assert cache.cross(1)[0].equal(narrow.cross(1)[0][[3, 0], :, :4])
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [3, 4]
    assert cache.num_rows == 4
    assert narrow.num_rows == 4


def test_copied_rows_go_on_from_what_the_source_held_before():
    cache = make_wide_cache(lengths=(4, 2))
    take_step(cache, 1)
    take_step(cache, 2)
    cache.rows.copy(torch.tensor([0, 1]), torch.tensor([1, 0]))  # at once: they trade places
    assert take_step(cache, 3) == [[101, 201, 300], [100, 200, 301], [102, 202, 302], [103, 203, 303]]


def test_selecting_a_sentence_keeps_all_its_rows():
    cache = make_wide_cache(lengths=(4, 2, 7))
    take_step(cache, 1)
    cache.select(torch.tensor([2, 0]))
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [7, 4]
    assert take_step(cache, 2) == [[104, 200], [105, 201], [100, 202], [101, 203]]


def test_wide_sentences_join_behind_the_others():
    cache = make_wide_cache(lengths=(4,))
    take_step(cache, 1)
    cache.concatenate(make_wide_cache(lengths=(5, 1)))
    assert cache.rows.lengths.tolist() == [1, 1, 0, 0, 0, 0]
    assert cache.cross_mask()[:, 0, 0].sum(-1).tolist() == [4, 5, 1]
    assert take_step(cache, 2) == [[100, 200], [101, 201], [202], [203], [204], [205]]
