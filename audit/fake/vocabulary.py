"""Vocabulary: the pieces of the toy tokenizer, and the way between text and token ids.

In: the count of ids. Out: ids for text, text for ids. Pieces are ASCII: three specials, the newline, the printable
characters, then letter pairs (triples, ...) as far as the count reaches. Text is split greedily, longest piece first,
which is no published tokenizer's algorithm but as reproducible. It does not merge, normalise or add spaces.
"""

from itertools import chain, count, islice, product
from string import ascii_lowercase

__all__ = ["BOS", "EOS", "UNKNOWN", "Vocabulary"]

BOS, EOS, UNKNOWN = 0, 1, 2
_SPECIALS = ("<s>", "</s>", "<unk>")


def _pieces() -> chain[str]:
    """Yield every piece in the order of its id, without end."""
    characters = ["\n", *(chr(code) for code in range(32, 127))]
    longer = ("".join(letters) for length in count(2) for letters in product(ascii_lowercase, repeat=length))
    return chain(_SPECIALS, characters, longer)


class Vocabulary:
    """The pieces of a toy model.

    Args:
        size: count of ids, at least 99.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces = tuple(islice(_pieces(), size))
        # What a reply shows of each id: the text and its bytes; the end of a sequence has neither.
        self.shown = tuple("" if token == EOS else piece for token, piece in enumerate(self.pieces))
        self.shown_bytes = tuple(list(text.encode("ascii")) for text in self.shown)
        self._ids = {piece: token for token, piece in enumerate(self.pieces)}
        self._length_max = max(len(piece) for piece in self.pieces)

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """Split text into ids, longest piece first; a character without a piece becomes the unknown token.

        Args:
            text: any text.
            add_special: whether the beginning-of-sequence token comes first.
            parse_special: whether text that spells a special token is that token.
        """
        tokens = [BOS] if add_special else []
        position = 0
        while position < len(text):
            for length in range(min(self._length_max, len(text) - position), 0, -1):
                token = self._ids.get(text[position : position + length])
                if token is not None and (parse_special or token > UNKNOWN):
                    break
            else:
                token, length = UNKNOWN, 1
            tokens.append(token)
            position += length
        return tokens

    def detokenize(self, tokens: list[int] | tuple[int, ...]) -> str:
        """Join the pieces of ids, specials included; every id must be of this vocabulary."""
        return "".join([self.pieces[token] for token in tokens])
