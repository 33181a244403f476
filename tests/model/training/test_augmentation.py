import dataclasses
import random
import re
import subprocess
import sys
import time

import pytest

from dragoman_model.training.augmentation import (
    augment,
    capitals,
    drop_final_punctuation,
    lower_source,
    made_up_name,
    same_numbers,
    swap_numbers,
    typographic_source,
)
from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions
from tests.model.made_up import made_up_pairs

OFF = AugmentationOptions(
    drop_punctuation=0.0,
    lower_case=0.0,
    lower_case_drop_punctuation=0.0,
    capitals=0.0,
    typographic=0.0,
    number_copies=0,
    numbered=0.0,
    joined=0.0,
    joined_numbers=0.0,
    copied=0.0,
    names=0.0,
)
PAIRS = made_up_pairs()


def only(**options):
    return dataclasses.replace(OFF, **options)


def test_with_everything_off_the_pairs_stay_as_they_are():
    assert augment(PAIRS, OFF, 1) == PAIRS


def test_the_same_seed_gives_the_same_rows_and_another_one_others():
    before = list(PAIRS)
    assert augment(PAIRS, AugmentationOptions(), 1) == augment(PAIRS, AugmentationOptions(), 1)
    assert augment(PAIRS, AugmentationOptions(), 1) != augment(PAIRS, AugmentationOptions(), 2)
    assert before == PAIRS


def test_the_rows_do_not_depend_on_the_process(monkeypatch):
    script = (
        "from dragoman_model.training.augmentation import augment\n"
        "from dragoman_model.training.recipe import AugmentationOptions\n"
        "from tests.model.made_up import made_up_pairs\n"
        "print(augment(made_up_pairs(), AugmentationOptions(names=1.0), 3))"
    )
    outputs = []
    for hash_seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
        outputs.append(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0]


@pytest.mark.parametrize(
    ("option", "change"),
    [
        ("drop_punctuation", drop_final_punctuation),
        ("lower_case", lower_source),
        ("lower_case_drop_punctuation", lambda pair: lower_source(drop_final_punctuation(pair))),
        ("capitals", capitals),
        ("typographic", typographic_source),
    ],
)
def test_a_surface_change_is_made_at_its_rate_and_in_place(option, change):
    pairs = PAIRS * 8  # 2,048: the standard deviation of a share of 0.3 is 0.01
    rows = augment(pairs, only(**{option: 0.3}), 7)
    assert len(rows) == len(pairs)
    could = [i for i, pair in enumerate(pairs) if change(pair) != pair]
    changed = [i for i, pair in enumerate(pairs) if rows[i] != pair]
    assert all(rows[i] == change(pairs[i]) for i in changed)
    assert 0.2 < len(changed) / len(could) < 0.4


def test_a_rate_of_1_changes_every_row():
    assert augment(PAIRS, only(capitals=1.0), 1) == [capitals(pair) for pair in PAIRS]


def test_at_most_one_surface_change_is_made_in_a_row():
    third = only(drop_punctuation=0.3, lower_case=0.3, capitals=0.4)
    for pair, row in zip(PAIRS, augment(PAIRS, third, 1)):
        assert row in (drop_final_punctuation(pair), lower_source(pair), capitals(pair))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("Go on.", "Weiter!"), ("Go on", "Weiter")),
        (("Well...", "Na ja …"), ("Well", "Na ja")),
        (("Really?!", "Echt?"), ("Really", "Echt")),
        (('He said "no."', "Er sagte „nein.“"), ('He said "no."', "Er sagte „nein.“")),
        (('He said "no".', "Er sagte „nein“."), ('He said "no"', "Er sagte „nein“")),
        (("No end", "Kein Ende."), ("No end", "Kein Ende.")),
        (("At 5 p.m.", "Um 17 Uhr."), ("At 5 p.m.", "Um 17 Uhr.")),
        (("?", "Was?"), ("?", "Was?")),
    ],
)
def test_final_punctuation_goes_on_both_sides_or_on_none(pair, expected):
    assert drop_final_punctuation(Pair(*pair)) == expected


def test_capitals_write_a_sharp_s_as_two():
    assert capitals(Pair("It's big.", "Groß und süß.")) == ("IT'S BIG.", "GROSS UND SÜSS.")


def test_lower_case_leaves_the_translation_a_proper_one():
    assert lower_source(Pair("Lena Sleeps.", "Lena schläft.")) == ("lena sleeps.", "Lena schläft.")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("I don't know.", "I don’t know."),
        ('"Hi," he said.', "“Hi,” he said."),
        ('She said, "It\'s late."', "She said, “It’s late.”"),
        ("It's the dogs' house.", "It’s the dogs’ house."),
        ("They call it 'home' now.", "They call it ‘home’ now."),
    ],
)
def test_typographic_marks_open_and_close(source, expected):
    assert typographic_source(Pair(source, '"so"')) == (expected, '"so"')


def test_numbers_are_copied_as_often_as_asked_and_stay_the_same_on_both_sides():
    pairs = [Pair("I have 15 apples.", "Ich habe 15 Äpfel."), Pair("I have 2 cats.", "Ich habe zwei Katzen.")]
    rows = augment(pairs, only(number_copies=50), 1)
    assert rows[:2] == pairs
    assert len(rows) == 52
    for row in rows[2:]:
        assert re.sub(r"\d+", "15", row.source) == pairs[0].source
        assert same_numbers(row)
    assert len(set(rows[2:])) > 20
    lengths = [len(re.search(r"\d+", row.source)[0]) for row in rows[2:]]
    assert lengths.count(2) > len(lengths) / 2
    assert set(lengths) > {2}


def swapped(source, target, times=300):
    rng = random.Random(5)
    return [swap_numbers(Pair(source, target), rng) for _ in range(times)]


def test_each_number_has_one_swap_on_both_sides_whatever_the_order():
    for row in swapped("In 1999 the 12 won 3:2.", "3:2 gewannen die 12 im Jahre 1999."):
        assert same_numbers(row)


def test_thousands_keep_three_digits():
    for row in swapped("It costs 1,000 or 12,345,678 yen.", "Es kostet 1.000 oder 12.345.678 Yen."):
        assert re.fullmatch(r"It costs [1-9],\d{3} or [1-9]\d,\d{3},\d{3} yen\.", row.source)
        assert row.target == row.source.replace(",", ".").replace("It costs", "Es kostet").replace(
            " or ", " oder "
        ).replace("yen", "Yen")


@pytest.mark.parametrize(
    ("source", "target", "latest"),
    [
        ("We eat at 6:30.", "Wir essen um 6.30 Uhr.", 23),
        ("We eat at 6:30 p.m. today.", "Wir essen um 6:30 Uhr abends.", 12),
        ("We eat at 6:05.", "Wir essen um 6.05 Uhr.", 23),
    ],
)
def test_clock_times_stay_valid(source, target, latest):
    hours = set()
    for row in swapped(source, target):
        hour, minute = re.search(r"(\d+):(\d\d)\b", row.source).groups()
        assert same_numbers(row)
        assert int(minute) < 60
        assert hour[0] != "0"
        assert (minute[0] == "0") == ("05" in source)
        hours.add(int(hour))
    assert min(hours) == 1
    assert max(hours) == latest


def test_full_hours_stay_valid():
    hours = {int(re.search(r"\d+", row.source)[0]) for row in swapped("At 7 o'clock.", "Um 7 Uhr.")}
    assert hours == set(range(1, 13))


def test_leading_zeros_stay_and_do_not_come():
    for row in swapped("Agent 007 has 90 days.", "Agent 007 hat 90 Tage."):
        agent, days = re.findall(r"\d+", row.source)
        assert agent[0] == "0" or len(agent) == 1
        assert days[0] != "0"


def test_ordinals_have_the_right_ending():
    endings = {}
    for row in swapped("The 21st floor.", "Der 21. Stock."):
        number, ending = re.search(r"(\d+)(st|nd|rd|th)", row.source).groups()
        endings.setdefault("th" if number[-2:-1] == "1" else number[-1], set()).add(ending)
    assert all(len(seen) == 1 for seen in endings.values())
    assert (endings["1"], endings["2"], endings["3"], endings["4"]) == ({"st"}, {"nd"}, {"rd"}, {"th"})


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [("1 of 2", "2 von 1", True), ("3 3", "3", False), ("none", "keine", False), ("1,000", "1000", False)],
)
def test_numbers_are_the_same_when_their_groups_of_digits_are(source, target, same):
    assert same_numbers(Pair(source, target)) is same


def test_joined_rows_hold_two_to_four_pairs_on_both_sides():
    pairs = [Pair(f"s{i}.", f"t{i}.") for i in range(20)]
    rows = augment(pairs, only(joined=1.0), 3)
    assert rows[:20] == pairs
    joined = rows[20:]
    assert len(joined) == 20
    assert {row.source.count(" ") + 1 for row in joined} == {2, 3, 4}
    assert all(row.target == row.source.replace("s", "t") for row in joined)


def test_rows_joined_from_numbers_are_made_of_those_alone():
    pairs = [Pair("one", "eins"), Pair("1 a", "1 b"), Pair("two", "zwei")]
    joined = augment(pairs, only(joined_numbers=1.0), 3)[3:]
    assert len(joined) == 3
    for row in joined:
        assert set(row.source.split()) == {"1", "a"}
        assert row.source.replace("a", "b") == row.target


def test_numbers_are_added_in_the_same_place_on_both_sides_and_before_the_final_mark():
    rows = augment([Pair("Go on.", "Weiter!")] * 300, only(numbered=1.0), 2)
    assert len(rows) == 300
    before = 0
    for row in rows:
        assert same_numbers(row)
        assert row.target == row.source.replace("Go on", "Weiter").replace(".", "!") or "." in row.target
        before += row.source.endswith("Go on.")
        assert row.source.startswith("Go on") or row.source.endswith("Go on.")
        assert row.source[-1] == "."
        assert row.target[-1] == "!"
    assert 60 < before < 180
    counts = {len(re.findall(r"\d+", row.source)) for row in rows}
    assert counts == {1, 2, 3, 4}


def test_many_numbers_have_few_different_digits():
    numbers = [re.search(r"\d+", row.source)[0] for row in swapped("In 123456 words.", "In 123456 Worten.")]
    of_six = [number for number in numbers if len(number) == 6]
    assert 0.3 < sum(len(set(number)) <= 2 for number in of_six) / len(of_six) < 0.7


def test_joined_rows_are_not_longer_than_allowed():
    pairs = [Pair("s" * 10, "t" * 11)] * 50
    joined = augment(pairs, only(joined=1.0, max_joined_characters=23), 3)[50:]
    assert joined
    assert {row.target for row in joined} == {"t" * 11 + " " + "t" * 11}


def test_what_is_added_to_copy_is_the_same_on_both_sides():
    rows = augment(PAIRS, only(copied=1.0), 1)
    added = set()
    for pair, row in zip(PAIRS, rows):
        before, after = row.source.split(pair.source)
        assert row.target == f"{before}{pair.target}{after}"
        assert (before == "") != (after == "")
        added.add((before or after).strip())
    assert any(re.match(r"https?://|www\.|\w+@\w+\.", thing) for thing in added)
    assert any(ord(thing[0]) > 0xFFFF for thing in added)


def test_a_name_is_swapped_on_both_sides():
    pairs = [pair for pair in PAIRS if "Lena" in pair.source]
    rows = augment(pairs, only(names=1.0), 1)
    new_names = set()
    for pair, row in zip(pairs, rows):
        name = row.source.split()[0]
        assert row == tuple(side.replace("Lena", name) for side in pair)
        new_names.add(name)
    assert len(new_names) > 10


def test_names_of_the_corpus_are_used_too():
    pairs = [Pair("Lena left.", "Lena ging."), Pair("Amara left.", "Amara ging.")] * 40
    names = {row.source.split()[0] for row in augment(pairs, only(names=1.0), 1)[0::2]}
    assert "Amara" in names


@pytest.mark.parametrize(
    "pair",
    [
        ("Lena's cat sleeps.", "Lenas Katze schläft."),  # inflected: not the same word
        ("Lena knows Lena.", "Lena kennt sich."),  # not as often on both sides
        ("Mary sleeps.", "Maria schläft."),
        ("Hand it over, in hand.", "Hand her, in der hand."),  # written small elsewhere: not a name
    ],
)
def test_what_is_no_common_name_is_left_alone(pair):
    others = [Pair("Amara left.", "Amara ging.")]
    assert augment([Pair(*pair), *others], only(names=1.0), 1)[0] == pair


def test_made_up_names_look_like_names():
    rng = random.Random(1)
    names = {made_up_name(rng) for _ in range(200)}
    assert len(names) > 150
    assert all(re.fullmatch(r"[A-Z][a-z]{1,12}", name) for name in names)


def test_augmenting_nothing_gives_nothing():
    assert augment([], AugmentationOptions(), 1) == []


def test_an_epoch_of_160000_pairs_takes_seconds():
    pairs = [Pair(f"{pair.source} {i}", pair.target) for i in range(625) for pair in PAIRS]
    started = time.process_time()  # not the clock on the wall: another job may run
    augment(pairs, dataclasses.replace(AugmentationOptions(), number_copies=0), 1)
    assert time.process_time() - started < 10  # 3 s are meant; the rest is for slow machines
