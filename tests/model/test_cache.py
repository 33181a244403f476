import pytest
import torch

from dragoman_model import key_value_cache
from dragoman_model.cache import DecoderCache, least_moves
from dragoman_model.errors import CacheFullError
from dragoman_model.key_value_cache import COLUMN_BLOCK, KeyValueCache

L, H, K = 2, 3, 25  # wide enough for blocks of no more than COLUMN_BLOCK


def make_cache(lengths=(4, 2, 7), max_length=50, width=1, seed=0, window=None):
    """A cache of sources of these lengths, whose cross-attention keys are random numbers."""
    generator = torch.Generator().manual_seed(seed)
    sentences, rows = KeyValueCache(L, H, K), KeyValueCache(L, H, K, window=window)
    sentences.add_rows(len(lengths), max(lengths))
    sentences.lengths[:] = lengths
    places = [(row, column) for row, length in enumerate(lengths) for column in range(length)]
    keys_values = torch.randn(len(places), L, 2, H, K, generator=generator)
    sentences.fill(*torch.tensor(places).unbind(1), keys_values)
    rows.add_rows(len(lengths) * width, 1)
    return DecoderCache(sentences, rows, max_length, width=width)


def used(cache):
    """How many columns each row may attend to."""
    return (cache.mask()[:, 0, 0] == 0).sum(-1).tolist()


def keys_of(cache, layer=0):
    """Keys of a layer, (R, H, C, K)."""
    return cache.layer(layer)[0].transpose(1, 2).unflatten(0, (-1, H))


def take_step(cache, number):
    """Writes keys that say which step and row they are of (step × 100 + row), values their negatives.

    Returns the keys that each row may attend to in this step, as such marks, row by row.
    """
    places = cache.begin_step()
    marks = number * 100 + torch.arange(cache.num_rows, dtype=torch.float32)
    for layer in range(L):
        appended = (marks + layer / 10)[:, None, None].expand(-1, H, K)
        cache.rows.write(layer, places, torch.stack((appended, -appended), dim=1))
        keys, values = cache.rows.layer(layer)
        assert keys.shape == (cache.num_rows * H, K, cache.rows.num_columns)
        assert values.equal(-keys.transpose(1, 2))
    cache.end_step()
    mask = cache.rows.mask()[:, 0, 0] == 0
    keys = keys_of(cache.rows, L - 1)[:, 0, :, 0]
    return [
        [round(mark - (L - 1) / 10) for mark in keys[row, mask[row]].tolist()] for row in range(len(mask))
    ]


def test_a_new_cache_is_at_step_zero():
    cache = make_cache()
    assert cache.num_rows == 3
    assert cache.rows.lengths == [0, 0, 0]
    assert used(cache.rows) == [0, 0, 0]
    assert used(cache.sentences) == [4, 2, 7]


def test_columns_come_in_whole_blocks():
    assert make_cache(lengths=(1,)).sentences.num_columns == COLUMN_BLOCK
    assert make_cache(lengths=(3, COLUMN_BLOCK)).sentences.num_columns == COLUMN_BLOCK
    assert make_cache(lengths=(COLUMN_BLOCK + 1, 3)).sentences.num_columns == 2 * COLUMN_BLOCK


def test_steps_come_back_in_order():
    cache = make_cache()
    take_step(cache, 1)
    take_step(cache, 2)
    assert take_step(cache, 3) == [[100, 200, 300], [101, 201, 301], [102, 202, 302]]
    assert cache.rows.lengths == [3, 3, 3]


def test_growing_keeps_what_is_held():
    cache = make_cache(max_length=70)
    for number in range(1, 71):  # past several enlargements, to the limit
        held = take_step(cache, number)
    assert held == [[number * 100 + row for number in range(1, 71)] for row in range(3)]


@pytest.mark.parametrize("max_length", [1, 3, 16, 17])
def test_a_step_past_the_limit_is_refused_and_says_the_limit(max_length):
    cache = make_cache(max_length=max_length)
    for mark in range(max_length):
        take_step(cache, mark)
    with pytest.raises(CacheFullError, match=f"{max_length} steps"):
        take_step(cache, 99)
    assert cache.rows.lengths == [max_length] * 3


def test_rows_that_join_start_behind_the_others_at_step_zero():
    cache, late = make_cache(), make_cache(lengths=(19, 1), seed=1)
    take_step(cache, 1)
    take_step(cache, 2)
    cross_before, cross_late = keys_of(cache.sentences, 1).clone(), keys_of(late.sentences, 1).clone()
    cache.concatenate(late)
    assert cache.num_rows == 5
    assert cache.rows.lengths == [2, 2, 2, 0, 0]
    assert used(cache.sentences) == [4, 2, 7, 19, 1]
    assert keys_of(cache.sentences, 1)[:3, :, :COLUMN_BLOCK].equal(cross_before)
    assert keys_of(cache.sentences, 1)[3:].equal(cross_late)
    assert take_step(cache, 3) == [[100, 200, 300], [101, 201, 301], [102, 202, 302], [303], [304]]


def test_joining_rows_with_more_steps_makes_room_for_them():
    short, long = make_cache(lengths=(2,)), make_cache(lengths=(3, 5))
    for mark in range(1, 21):
        take_step(long, mark)
    take_step(short, 7)
    short.concatenate(long)
    assert short.rows.lengths == [1, 20, 20]
    steps = [[mark * 100 + row for mark in range(1, 21)] for row in (0, 1)]
    assert take_step(short, 80) == [[700, 8000], [*steps[0], 8001], [*steps[1], 8002]]


def test_selecting_reorders_and_reads_no_columns_that_no_row_uses():
    cache, late = make_cache(lengths=(4, 2, 37)), make_cache(lengths=(3,), seed=1)
    for mark in range(1, 18):
        take_step(cache, mark)
    cache.concatenate(late)
    take_step(cache, 18)
    keys = keys_of(cache.sentences).clone()
    cache.select([3, 1])
    assert cache.rows.lengths == [1, 18]
    assert cache.sentences.num_columns == COLUMN_BLOCK
    assert keys_of(cache.sentences).equal(keys[[3, 1], :, :COLUMN_BLOCK])
    long = [mark * 100 + 1 for mark in range(1, 19)]
    assert take_step(cache, 50) == [[1803, 5000], [*long, 5001]]
    cache.select([0])
    assert cache.rows.num_columns == COLUMN_BLOCK  # the long row's columns are no longer read
    assert take_step(cache, 60) == [[1803, 5000, 6000]]


def test_a_row_in_the_slot_of_one_that_left_sees_nothing_of_it():
    cache = make_cache()
    for mark in range(1, 21):
        take_step(cache, mark)
    cache.select([0])
    cache.concatenate(make_cache(lengths=(2, 9), seed=1))
    assert take_step(cache, 30)[1:] == [[3001], [3002]]
    assert used(cache.sentences) == [4, 2, 9]


def test_the_room_of_a_very_long_row_is_given_back(monkeypatch):
    monkeypatch.setattr(key_value_cache, "KEPT_BYTES", 0)
    cache = make_cache(max_length=500)
    for mark in range(400):
        take_step(cache, mark)
    cache.concatenate(make_cache(lengths=(2,), seed=1))
    take_step(cache, 400)
    large = cache.rows._buffer.numel()
    cache.select([3])
    assert cache.rows._buffer.numel() < large / 5
    assert take_step(cache, 401) == [[40003, 40100]]


def test_the_room_of_many_rows_is_given_back(monkeypatch):
    monkeypatch.setattr(key_value_cache, "KEPT_BYTES", 0)
    cache = make_cache(lengths=(3,) * 40)
    take_step(cache, 1)
    many = cache.rows._buffer.numel()
    cache.select([39])
    assert cache.rows._buffer.numel() == many / 20
    assert take_step(cache, 2) == [[139, 200]]
    room = cache.rows._buffer.numel()
    cache.select([])
    cache.concatenate(make_cache(lengths=(5,)))
    assert take_step(cache, 3) == [[300]]
    assert cache.rows._buffer.numel() <= room


def test_room_that_is_reserved_stays_where_it_is_up_to_its_size(monkeypatch):
    monkeypatch.setattr(key_value_cache, "KEPT_BYTES", 0)
    cache = make_cache(lengths=(3,) * 40)
    size = cache.rows.size_bytes
    for kept_bytes in (size * 4, 0):
        cache.rows.reserve(80, 17, kept_bytes)
        assert cache.rows.room == (80, 2 * COLUMN_BLOCK)
        before = cache.rows.fixed(80, COLUMN_BLOCK)
        take_step(cache, 1)
        cache.select([0])
        assert cache.rows.shares_memory(before) == (kept_bytes > 0)


def test_what_is_written_is_seen_in_the_fixed_part_of_the_same_memory():
    cache = make_cache(lengths=(4, 2))
    fixed = cache.rows.fixed(1, COLUMN_BLOCK)
    take_step(cache, 1)
    take_step(cache, 2)
    assert fixed.mask().shape == (1, 1, 1, COLUMN_BLOCK)
    assert keys_of(fixed)[0, :, :2, 0].tolist() == [[100, 200]] * H
    fixed.write(0, 5, torch.full((1, 2, H, K), 7.0))
    assert (keys_of(cache.rows)[0, :, 5] == 7).all()
    assert cache.rows.lengths == [2, 2]


def test_rows_can_be_selected_more_than_once():
    cache = make_cache()
    take_step(cache, 1)
    cache.select([1, 1, 0])
    assert take_step(cache, 2) == [[101, 200], [101, 201], [100, 202]]
    assert used(cache.sentences) == [2, 2, 4]


def test_selecting_nothing_leaves_an_empty_cache_that_rows_can_join():
    cache = make_cache()
    take_step(cache, 1)
    cache.select([])
    assert cache.num_rows == 0
    cache.concatenate(make_cache(lengths=(5,)))
    assert take_step(cache, 2) == [[200]]
    assert used(cache.sentences) == [5]


def test_the_limit_counts_each_rows_own_steps():
    cache = make_cache(max_length=3)
    take_step(cache, 1)
    take_step(cache, 2)
    cache.concatenate(make_cache(lengths=(2,), max_length=3))
    take_step(cache, 3)
    cache.select([3])  # the rows at their limit leave
    take_step(cache, 4)
    assert take_step(cache, 5) == [[303, 400, 500]]
    with pytest.raises(CacheFullError):
        take_step(cache, 6)


@pytest.mark.parametrize(
    ("kept", "order"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([1, 2, 3], [3, 1, 2]),
        ([2, 4], [4, 2]),
        ([], []),
        ([0, 3, 4, 6], [0, 6, 4, 3]),
    ],
)
def test_the_last_slots_fill_the_gaps(kept, order):
    assert least_moves(kept) == order
    assert sorted(order) == kept


# Several rows a sentence


def test_rows_of_a_sentence_share_its_source():
    cache = make_cache(width=4)
    assert cache.num_rows == 12
    assert cache.sentences.num_rows == 3
    assert cache.sentences.mask().size(0) == 3


def test_copied_rows_go_on_from_what_the_source_held_before():
    cache = make_cache(lengths=(4, 2), width=2)
    take_step(cache, 1)
    take_step(cache, 2)
    cache.branch([0, 1], [1, 0])  # at once: they trade places
    assert take_step(cache, 3) == [[101, 201, 300], [100, 200, 301], [102, 202, 302], [103, 203, 303]]


def test_selecting_a_sentence_keeps_all_its_rows():
    cache = make_cache(lengths=(4, 2, 7), width=2)
    take_step(cache, 1)
    cache.select([2, 0])
    assert used(cache.sentences) == [7, 4]
    assert take_step(cache, 2) == [[104, 200], [105, 201], [100, 202], [101, 203]]


def test_wide_sentences_join_behind_the_others():
    cache = make_cache(lengths=(4,), width=2)
    take_step(cache, 1)
    cache.concatenate(make_cache(lengths=(5, 1), width=2))
    assert cache.rows.lengths == [1, 1, 0, 0, 0, 0]
    assert used(cache.sentences) == [4, 5, 1]
    assert take_step(cache, 2) == [[100, 200], [101, 201], [202], [203], [204], [205]]


# A window


def written(row, *numbers):
    """The marks of the steps with these numbers."""
    return [number * 100 + row for number in numbers]


@pytest.mark.parametrize("window", [1, 3, COLUMN_BLOCK, COLUMN_BLOCK + 3])
def test_of_a_window_each_row_keeps_its_last_steps_alone(window):
    cache = make_cache(lengths=(4, 2), max_length=200, window=window)
    for number in range(1, 41):
        held = take_step(cache, number)
        first = max(1, number - window + 1)
        assert [sorted(marks) for marks in held] == [
            written(row, *range(first, number + 1)) for row in (0, 1)
        ]
    assert cache.rows.lengths == [40, 40]


def test_memory_of_a_window_stops_growing_when_it_is_full():
    cache = make_cache(max_length=10_000, window=COLUMN_BLOCK + 3)
    sizes = set()
    for number in range(1, 200):
        take_step(cache, number)
        if number > COLUMN_BLOCK + 3:
            sizes.add((cache.rows.size_bytes, cache.rows.num_columns))
    assert {columns for _, columns in sizes} == {2 * COLUMN_BLOCK}
    assert len(sizes) == 1


def test_rows_at_other_steps_go_round_a_window_each_by_itself():
    window = 3
    cache, late = make_cache(lengths=(4, 2), window=window), make_cache(lengths=(1,), window=window)
    for number in range(1, 6):
        take_step(cache, number)
    take_step(late, 7)
    cache.concatenate(late)
    held = take_step(cache, 8)
    assert [sorted(marks) for marks in held] == [written(0, 4, 5, 8), written(1, 4, 5, 8), [700, 802]]
    cache.branch([1], [0])
    cache.select([2, 0])
    held = take_step(cache, 9)
    assert [sorted(marks) for marks in held] == [[700, 802, 900], [501, 801, 901]]
    held = take_step(cache, 10)
    assert [sorted(marks) for marks in held] == [[802, 900, 1000], [801, 901, 1001]]
