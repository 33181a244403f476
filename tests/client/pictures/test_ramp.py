from itertools import pairwise

import pytest

from dragoman_client.pictures.ramp import NIGHT, PAPER, Color, color_at


def lightness(color: Color) -> float:
    """CIE L*, 0 to 100."""
    linear = [
        value / 255 / 12.92 if value / 255 <= 0.04045 else ((value / 255 + 0.055) / 1.055) ** 2.4
        for value in color
    ]
    luminance = sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear))
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


@pytest.mark.parametrize(("ramp", "direction"), [(PAPER, -1), (NIGHT, 1)])
def test_equal_steps_change_lightness_by_nearly_the_same(ramp: tuple[Color, ...], direction: int) -> None:
    steps = [direction * (lightness(b) - lightness(a)) for a, b in pairwise(ramp)]

    assert min(steps) > 10
    assert max(steps) < 1.5 * min(steps)


def test_colours_outside_the_range_are_those_of_its_ends() -> None:
    assert color_at(PAPER, -1) == PAPER[0]
    assert color_at(PAPER, 2) == PAPER[-1]
    assert color_at(PAPER, 0.5) == PAPER[3]
