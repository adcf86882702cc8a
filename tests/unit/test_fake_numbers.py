"""The fake's vocabulary, model and sampler: text survives, numbers are pure, samplers do what they are asked."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.fake.model import ToyModel
from audit.fake.sampler import Sampling, choose, generator
from audit.fake.vocabulary import BOS, EOS, UNKNOWN, Vocabulary

VOCABULARY = Vocabulary(512)
MODEL = ToyModel(512)
CONTEXT = b"".join(token.to_bytes(4, "little") for token in (0, 40, 50, 60))
ROW = MODEL.row(CONTEXT, seed=0)
GREEDY = Sampling(seed=7, temperature=0.0, samplers=("temperature",), top_k=0, top_p=1.0, min_p=0.0, bias=())


def sampled(**changes: Any) -> int:  # noqa: ANN401 - values of settings
    """The token that a sampling at temperature 1 takes."""
    settings: dict[str, Any] = {"seed": 7, "temperature": 1.0, "samplers": ("top_k", "top_p", "min_p", "temperature")}
    sampling = Sampling(**{"top_k": 0, "top_p": 1.0, "min_p": 0.0, "bias": (), **settings, **changes})
    return choose(ROW, sampling, generator(sampling.seed)).token


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_text_survives_tokenizing(text: str) -> None:
    """Any printable ASCII text comes back from its ids."""
    assert VOCABULARY.detokenize(VOCABULARY.tokenize(text)) == text


def test_the_longest_piece_wins() -> None:
    """Two letters with a piece of their own are one token, and a single letter is one too."""
    tokens = VOCABULARY.tokenize("aab")
    assert [VOCABULARY.pieces[token] for token in tokens] == ["aa", "b"]


def test_special_text_is_a_token_only_where_it_may_be() -> None:
    """The end of the sequence is one token, or four characters when specials are not parsed."""
    assert VOCABULARY.tokenize("</s>") == [EOS]
    assert len(VOCABULARY.tokenize("</s>", parse_special=False)) == 4
    assert VOCABULARY.tokenize("", add_special=True) == [BOS]


def test_a_character_without_a_piece_is_unknown() -> None:
    """What the vocabulary cannot spell becomes the unknown token."""
    assert VOCABULARY.tokenize("\t") == [UNKNOWN]


@pytest.mark.parametrize("size", [99, 512, 20000])
def test_every_size_has_so_many_distinct_ascii_pieces(size: int) -> None:
    """No two ids share a piece, however many there are."""
    pieces = Vocabulary(size).pieces
    assert len(pieces) == len(set(pieces)) == size
    assert all(piece.isascii() for piece in pieces)


def test_a_row_is_a_pure_function_of_seed_and_context() -> None:
    """Another model object gives the same bytes; another seed or token changes every number."""
    same = ToyModel(512).row(CONTEXT, seed=0)
    assert same.logprobs.tobytes() == ROW.logprobs.tobytes()
    for other in (MODEL.row(CONTEXT, seed=1), MODEL.row(b"\x01" + CONTEXT[1:], seed=0)):
        assert not np.any(other.logits == ROW.logits)


def test_a_row_is_float32_sums_to_one_and_is_ordered() -> None:
    """Logprobs are float32, their probabilities add up, and the order is by logprob, then id."""
    assert ROW.logprobs.dtype == ROW.logits.dtype == np.float32
    assert np.exp(ROW.logprobs.astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-5)
    keys = [(-ROW.logprobs[token], token) for token in ROW.order]
    assert keys == sorted(keys)


def test_noise_moves_numbers_a_little_and_repeats() -> None:
    """A salted row differs from the clean one by no more than rounding does, and equal salts give equal rows."""
    noisy = MODEL.row(CONTEXT, seed=0, salt=3)
    assert 0 < np.abs(noisy.logprobs - ROW.logprobs).max() < 1e-4
    assert noisy.logprobs.tobytes() == ToyModel(512).row(CONTEXT, seed=0, salt=3).logprobs.tobytes()
    assert noisy.logprobs.tobytes() != MODEL.row(CONTEXT, seed=0, salt=4).logprobs.tobytes()


def test_memory_for_rows_is_bounded() -> None:
    """A row that was dropped from memory is computed again, the same."""
    model = ToyModel(99)
    first = model.row(b"", seed=0)
    for token in range(3000):
        model.row(token.to_bytes(4, "little"), seed=0)
    assert len(model._rows) <= 2048
    assert model.row(b"", seed=0) is not first
    assert model.row(b"", seed=0).logprobs.tobytes() == first.logprobs.tobytes()


def test_greedy_takes_the_best_admissible_token() -> None:
    """At temperature 0 the best id is taken, past those that are banned, and a bias can make another one best."""
    best, second, third = ROW.order[:3].tolist()
    assert choose(ROW, GREEDY, generator(7)).token == best
    for bias, token in (
        (((best, -np.inf),), second),
        (((best, -np.inf), (second, -np.inf)), third),
        (((third, 50.0),), third),
        (((best, -50.0),), second),
    ):
        sampling = Sampling(**{**{name: getattr(GREEDY, name) for name in GREEDY.__slots__}, "bias": bias})
        assert choose(ROW, sampling, generator(7)).token == token


def test_a_grammar_leaves_one_candidate() -> None:
    """The allowed id is taken however unlikely it is."""
    worst = int(ROW.order[-1])
    assert choose(ROW, GREEDY, generator(7), allowed=worst).token == worst


def test_a_seed_repeats_and_another_one_differs() -> None:
    """Equal seeds draw equal tokens; a hundred seeds do not all draw the same one."""
    assert sampled(seed=5) == sampled(seed=5)
    assert len({sampled(seed=seed) for seed in range(100)}) > 10


def test_the_random_seed_is_random() -> None:
    """Seed 4294967295 draws from what nobody is told."""
    assert len({sampled(seed=0xFFFFFFFF) for _ in range(100)}) > 10


@pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-6}])
def test_each_sampler_can_leave_the_best_token_alone(changes: dict[str, Any]) -> None:
    """Each of the four, at its extreme, makes sampling greedy."""
    assert {sampled(seed=seed, **changes) for seed in range(50)} == {int(ROW.order[0])}


def test_temperature_0_without_its_sampler_is_not_greedy() -> None:
    """A temperature that no sampler applies changes nothing."""
    chain = ("top_k", "top_p")
    assert len({sampled(seed=seed, temperature=0.0, samplers=chain) for seed in range(100)}) > 10


def test_heat_flattens() -> None:
    """At a high temperature more ids are drawn than at a low one."""
    counts = [len({sampled(seed=seed, temperature=heat) for seed in range(200)}) for heat in (0.2, 1.0, 20.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
