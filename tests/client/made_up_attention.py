"""Attention as the client hands it over, made of what a scripted server would send."""

from dragoman import v1
from dragoman_client.attention import Attention
from dragoman_client.attention_reader import AttentionReader
from tests.client.scripted_attention import attention_of

ALL_KINDS = ["ATTENTION_KIND_CROSS", "ATTENTION_KIND_ENCODER_SELF", "ATTENTION_KIND_DECODER_SELF"]
WORDS = {"kinds": ALL_KINDS, "level": "ATTENTION_LEVEL_WORD"}


def make_attention(*pairs: tuple[str, str], **selection: object) -> list[Attention]:
    """Returns the attention of a text's sentences.

    Args:
        pairs: Each sentence and its translation; single spaces join the sentences to the text.
        selection: Fields of the wire's selection; without any, words of all kinds.
    """
    wanted = v1.AttentionSelection(**(selection or WORDS))
    reader = AttentionReader(" ".join(source for source, _ in pairs))
    start = 0
    for index, (source, target) in enumerate(pairs):
        for response in attention_of(source, start, target, index, len(pairs), wanted):
            reader.feed(response)
        start += len(source) + 1
    return reader.finish()
