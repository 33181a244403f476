"""What people type and a corpus does not hold: changed and additional copies of its pairs, others every epoch.

The order matters. Names and numbers are swapped first, then pairs are joined, then something is added to copy, and last
comes the surface, so that a joined row is in capitals as a whole.
"""

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions

_NAME = re.compile(r"(?<![\w'’-])[A-Z][a-z]{2,}(?![\w-])")  # a capitalised word, not a part of a longer one
_DIGITS = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,]\d{3})+(?!\d)")
_CLOCK = re.compile(r"(?<![\d.,:])(\d{1,2})[:.](\d{2})(?![\d:]|[.,]\d)")
_HOUR = re.compile(r"(?<![\d.,:])(\d{1,2})(?= ?[ap]\.?m\b| o['’]clock| Uhr)")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)\b")
_FINAL = re.compile(r"\s*[.!?…]+$")
_ABBREVIATION = re.compile(r"\.\w+\.$")  # p.m., z.B.: its last full stop is the word's own


def augment(pairs: Sequence[Pair], options: AugmentationOptions, seed: int) -> list[Pair]:
    """Returns the pairs as one epoch sees them: some changed, some added, in no particular order.

    Args:
        pairs: Clean pairs; they are not changed.
        options: How often each change is made.
        seed: The same arguments give the same rows; another seed, other changes.
    """
    rng = random.Random(seed)
    rows = _swap_names(pairs, options.names, rng) if options.names else list(pairs)
    if options.number_copies:
        rows += _number_copies(pairs, options.number_copies, rng)
    if options.numbered:
        rows = [_add_numbers(row, rng) if rng.random() < options.numbered else row for row in rows]
    for share, parts in ((options.joined, rows), (options.joined_numbers, list(filter(same_numbers, rows)))):
        rows = rows + _joined(parts, round(share * len(pairs)), options.max_joined_characters, rng)
    if options.copied:
        rows = [_add_copied(row, rng) if rng.random() < options.copied else row for row in rows]
    return _change_surface(rows, options, rng)


def _change_surface(rows: list[Pair], options: AugmentationOptions, rng: random.Random) -> list[Pair]:
    """Makes at most one of the surface changes in each row, drawn by their rates."""
    changes: list[tuple[float, Callable[[Pair], Pair]]] = []
    bound = 0.0
    for rate, change in (
        (options.drop_punctuation, drop_final_punctuation),
        (options.lower_case, lower_source),
        (options.lower_case_drop_punctuation, lambda pair: lower_source(drop_final_punctuation(pair))),
        (options.capitals, capitals),
        (options.typographic, typographic_source),
    ):
        bound += rate
        changes.append((bound, change))
    if bound == 0:
        return rows
    changed = []
    for row in rows:
        drawn = rng.random()
        chosen = next((change for limit, change in changes if drawn < limit), None)
        changed.append(chosen(row) if chosen is not None else row)
    return changed


def drop_final_punctuation(pair: Pair) -> Pair:
    """Drops .!?… at the end of both sides; a pair where one side ends otherwise, in a quotation say, stays."""
    if any(_ABBREVIATION.search(side) for side in pair):
        return pair
    source, target = (_FINAL.sub("", side) for side in pair)
    both_changed = source != pair.source and target != pair.target
    return Pair(source, target) if both_changed and source and target else pair


def lower_source(pair: Pair) -> Pair:
    """Lower-cases the source; the translation of a sloppy sentence is still a proper one."""
    return Pair(pair.source.lower(), pair.target)


def capitals(pair: Pair) -> Pair:
    """Puts both sides into capitals; ß becomes SS, as German writes it."""
    return Pair(pair.source.upper(), pair.target.upper())


def typographic_source(pair: Pair) -> Pair:
    """Curls the source's apostrophes and quotation marks, as word processors and phones do."""
    source = re.sub(r'(^|[\s(\[—–-])"', r"\1“", pair.source).replace('"', "”")
    return Pair(re.sub(r"(^|[\s(\[—–-])'(?=\w+')", r"\1‘", source).replace("'", "’"), pair.target)


def _joined(rows: list[Pair], count: int, max_characters: int, rng: random.Random) -> list[Pair]:
    """Returns up to ``count`` rows of 2 to 4 random rows each; what would be too long is left out."""
    joined = []
    for _ in range(count if rows else 0):
        parts = [rows[int(rng.random() * len(rows))] for _ in range(rng.choice((2, 2, 3, 4)))]
        source = " ".join(part.source for part in parts)
        target = " ".join(part.target for part in parts)
        if max(len(source), len(target)) <= max_characters:
            joined.append(Pair(source, target))
    return joined


# Numbers


def same_numbers(pair: Pair) -> bool:
    """Returns whether both sides hold the same groups of digits, and any."""
    groups = sorted(_DIGITS.findall(pair.source))
    return bool(groups) and groups == sorted(_DIGITS.findall(pair.target))


def _number_copies(pairs: Sequence[Pair], copies: int, rng: random.Random) -> list[Pair]:
    numbered = [pair for pair in pairs if same_numbers(pair)]
    return [swap_numbers(pair, rng) for pair in numbered for _ in range(copies)]


def swap_numbers(pair: Pair, rng: random.Random) -> Pair:
    """Swaps every group of digits for another one, the same on both sides.

    A clock time stays one, a group of thousands keeps its three digits, and a number has a leading zero only if it had
    one before. Most numbers keep their number of digits; some get 1 to 6 of them.
    """
    text = "\n".join(pair)
    fixed = {group for number in _THOUSANDS.findall(text) for group in _DIGITS.findall(number)}
    times = _CLOCK.findall(text) if not fixed else []
    twelve_hours = re.search(r"\d ?[ap]\.?m\b|o['’]clock", text) is not None
    swapped: dict[str, str] = {}
    for hour, minute in times:
        if int(hour) < 24 and int(minute) < 60:
            swapped.setdefault(hour, _hour(hour, twelve_hours, rng))
            swapped.setdefault(minute, _minute(minute, rng))
    for hour in _HOUR.findall(text):
        swapped.setdefault(hour, _hour(hour, twelve_hours, rng))
    # A set has another order in every process, a dict does not.
    for group in dict.fromkeys(_DIGITS.findall(text)):
        if group not in swapped:
            length = len(group) if group in fixed or rng.random() < 0.8 else rng.randint(1, 6)
            swapped[group] = _digits(length, group[0] == "0" and len(group) > 1, group in fixed, rng)
    source, target = (_DIGITS.sub(lambda match: swapped[match.group()], side) for side in pair)
    return Pair(_ORDINAL.sub(_with_ordinal_ending, source), _ORDINAL.sub(_with_ordinal_ending, target))


def _with_ordinal_ending(number: re.Match[str]) -> str:
    digits = number[1]
    teens = digits[-2:-1] == "1"  # 11th, 12th, 13th
    return digits + ("th" if teens else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th"))


def _hour(old: str, twelve_hours: bool, rng: random.Random) -> str:
    if old[0] == "0":
        return f"0{rng.randint(1, 9)}" if len(old) == 2 else "0"
    return str(rng.randint(1, 12 if twelve_hours else 23))


def _minute(old: str, rng: random.Random) -> str:
    return f"0{rng.randint(0, 9)}" if old[0] == "0" else str(rng.randint(10, 59))


def _digits(length: int, leading_zero: bool, in_thousands: bool, rng: random.Random) -> str:
    if length == 1 and not in_thousands:
        return str(rng.randint(2, 9))  # one of a thing would need another form of the noun
    if length == 4 and not leading_zero and rng.random() < 0.5:
        return str(rng.randint(1000, 2099))  # a year
    # Few different digits half of the time: in 1888 or 7700 a copy has to count, not only to find.
    alphabet = string.digits if rng.random() < 0.5 else rng.sample(string.digits, 2)
    digits = "".join(rng.choices(alphabet, k=length))
    if leading_zero:
        return "0" + digits[1:]
    return digits if digits[0] != "0" else str(rng.randint(1, 9)) + digits[1:]


_BEFORE = ("{}. ", "{}: ", "{}) ", "({}) ", "{} – ")
_BEHIND = (" {}", ", {}", " ({})", " [{}]", ": {}", " – {}")
_BETWEEN = (", ", "/", " + ", "–", " x ", " = ", "; ")


def _add_numbers(pair: Pair, rng: random.Random) -> Pair:
    """Puts one to four numbers before both sides, or behind them, before the final mark."""
    between = rng.choice(_BETWEEN)
    numbers = between.join(
        _digits(rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6)), False, False, rng)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4)))
    )
    if rng.random() < 0.4:
        added = rng.choice(_BEFORE).format(numbers)
        return Pair(*(added + side for side in pair))
    added = rng.choice(_BEHIND).format(numbers)
    ends = [_FINAL.search(side) for side in pair]
    bodies = [side[: end.start()] if end else side for side, end in zip(pair, ends, strict=True)]
    return Pair(*(body + added + side[len(body) :] for body, side in zip(bodies, pair, strict=True)))


# Names

_ONSETS = (*"bdfghjklmnprstvwz", "br", "ch", "dr", "kl", "sch", "st")
_ENDINGS = ("", "", *"nrlsmx", "ck", "nd")


def _swap_names(pairs: Sequence[Pair], rate: float, rng: random.Random) -> list[Pair]:
    """Swaps a name for another in ``rate`` of the rows in which both sides hold one."""
    named = [(index, names) for index, pair in enumerate(pairs) if (names := _shared_names(pair))]
    counted = Counter(name for _, names in named for name in names)
    ordinary = {word for pair in pairs for word in pair.source.split() if word[:1].islower()}
    # "In Japan" is "In Japan": a word that is written small elsewhere is not a name.
    names = sorted(name for name in counted if name.lower() not in ordinary)
    is_name = set(names)
    rows = list(pairs)
    for index, shared in named:
        if rng.random() >= rate:
            continue
        swappable = [name for name in shared if name in is_name]
        if swappable:
            old = rng.choice(swappable)
            new = rng.choice(names) if rng.random() < 0.5 else made_up_name(rng)
            pattern = re.compile(rf"\b{old}\b")
            rows[index] = Pair(*(pattern.sub(new, side) for side in pairs[index]))
    return rows


def _shared_names(pair: Pair) -> list[str]:
    """Returns the words that look like names and stand equally often on both sides, in the source's order."""
    source = _NAME.findall(pair.source)
    if not source:
        return []
    target = _NAME.findall(pair.target)
    return [name for name in dict.fromkeys(source) if source.count(name) == target.count(name)]


def made_up_name(rng: random.Random) -> str:
    """Returns a name that can be said and that nobody has: the model has to copy it."""
    syllables = [rng.choice(_ONSETS) + rng.choice("aeiouy") for _ in range(rng.choice((1, 2, 2, 3)))]
    return ("".join(syllables) + rng.choice(_ENDINGS)).capitalize()


# Things to copy

_SYMBOLS = "".join(
    chr(code)
    for first, last in (
        (0x1F300, 0x1F64F),  # pictures and faces
        (0x1F680, 0x1F6C5),  # traffic
        (0x1F90C, 0x1F9FF),  # more faces, hands, animals, food
        (0x2600, 0x26FF),  # weather, chess, zodiac
        (0x2190, 0x21FF),  # arrows
        (0x0391, 0x03A1),  # Greek
        (0x0410, 0x044F),  # Cyrillic
        (0x4E00, 0x4EFF),  # Chinese
    )
    for code in range(first, last + 1)
)


def _add_copied(pair: Pair, rng: random.Random) -> Pair:
    """Puts a symbol or an address before or after both sides."""
    copied = _address(rng) if rng.random() < 0.25 else rng.choice(_SYMBOLS) * rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.25:
        return Pair(f"{copied} {pair.source}", f"{copied} {pair.target}")
    return Pair(f"{pair.source} {copied}", f"{pair.target} {copied}")


def _address(rng: random.Random) -> str:
    """Returns a web or e-mail address that leads nowhere."""
    name, host = made_up_name(rng).lower(), made_up_name(rng).lower()
    domain = f"{host}.{rng.choice(('com', 'de', 'org', 'net', 'co.uk', 'example'))}"
    path = rng.choice(("", "", f"/{name}", f"/{name}/{rng.randint(1, 9999)}", f"/{name}.html"))
    site = f"{domain}{path}"
    return rng.choice((f"https://{site}", f"https://www.{site}", f"www.{site}", site, f"{name}@{domain}"))
