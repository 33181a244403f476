"""Colour ramps from weight 0 to weight 1.

Lightness (CIE L*) changes by nearly the same amount from stop to stop, so that equal steps of weight look equal, in grey and
to colour-blind eyes, too.
"""

from typing import TypeAlias

Color: TypeAlias = tuple[int, int, int]

# Ink on paper: for light backgrounds.
PAPER: tuple[Color, ...] = (
    (242, 240, 234),
    (175, 218, 221),
    (109, 186, 213),
    (62, 147, 201),
    (44, 107, 174),
    (38, 69, 134),
    (29, 38, 85),
)
# From night to lamp light: for dark backgrounds, and for terminals, whose background nobody knows.
NIGHT: tuple[Color, ...] = (
    (24, 26, 36),
    (46, 46, 98),
    (102, 62, 142),
    (185, 72, 132),
    (238, 111, 93),
    (250, 176, 80),
    (249, 229, 150),
)


def color_at(ramp: tuple[Color, ...], level: float) -> Color:
    """Returns a ramp's colour, red, green and blue of 0 to 255 each.

    Args:
        ramp: Its stops, evenly spaced; straight lines join them.
        level: 0 to 1; what lies outside counts as the end.
    """
    place = min(max(level, 0.0), 1.0) * (len(ramp) - 1)
    low = min(int(place), len(ramp) - 2)
    red, green, blue = (
        round(a + (b - a) * (place - low)) for a, b in zip(ramp[low], ramp[low + 1], strict=True)
    )
    return red, green, blue
