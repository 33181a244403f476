import pytest

from dragoman_client import FinishReason, TextSpan, Translation, WordLink, pharaoh


def translation(text: str, *links: tuple[tuple[int, int] | None, tuple[int, int]]) -> Translation:
    return Translation(
        text, FinishReason.EOS, -1.0, -1.0, 1, 1, 1, (), "m", "d",
        word_links=tuple(
            WordLink(TextSpan(*source) if source else None, TextSpan(*target), 0.5) for source, target in links
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "links", "text"),
    [
        ("a b", "x y", [((0, 1), (2, 3)), ((2, 3), (0, 1))], "0-1 1-0"),
        ("a b", "x y", [(None, (0, 1)), ((2, 3), (2, 3))], "1-1"),
        ("  a\n\nb", "x \ty", [((5, 6), (3, 4))], "1-1"),
        ("a b c", "x", [((0, 3), (0, 1))], "0-0 1-0"),  # a span over two words
        ("b a", "x", [((0, 1), (0, 1)), ((0, 1), (0, 1))], "0-0"),
        ("", "", [], ""),
    ],
)
def test_words_are_counted_from_0_by_white_space(source, target, links, text):
    assert pharaoh(source, translation(target, *links)) == text
