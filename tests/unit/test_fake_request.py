"""The fake reads request bodies as llama-server does: what each form of a field means, and what is refused."""

from typing import Any

import pytest

from audit.fake.echo import default_settings
from audit.fake.refusal import RefusalError
from audit.fake.request import Request, parse
from audit.fake.vocabulary import EOS, Vocabulary

VOCABULARY = Vocabulary(512)


def read(**body: object) -> Request:
    """Parse a body with one prompt."""
    (request,) = parse({"prompt": [5, 6], **body}, VOCABULARY, 64)
    return request


def refusal(**body: object) -> dict[str, Any]:
    """Parse a body that is refused, and return the error."""
    with pytest.raises(RefusalError) as caught:
        parse({"prompt": [5, 6], **body}, VOCABULARY, 64)
    error = caught.value.body["error"]
    assert isinstance(error, dict)
    return error


def test_an_empty_body_has_the_defaults_of_llama_server() -> None:
    """Whoever asks for nothing samples at 0.8 with a random seed, without logprobs, with the cache on."""
    request = read()
    assert request.sampling.temperature == 0.800000011920929
    assert request.sampling.seed == 0xFFFFFFFF
    assert (request.n_predict, request.n_probs, request.slot, request.cache_prompt) == (-1, 0, -1, True)
    assert not request.return_tokens


def test_default_settings_are_those_of_an_empty_body() -> None:
    """What `/props` lists is what an empty body gets, without the parts that only a reply shows."""
    settings = read().settings
    defaults = default_settings()
    assert {name: settings[name] for name in defaults} == defaults | {"reasoning_format": "deepseek"}
    assert set(settings) - set(defaults) >= {"stop", "logit_bias", "grammar"}


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("aab", [[0, *VOCABULARY.tokenize("aab")]]),
        ("", [[]]),
        ([5, 6], [[5, 6]]),
        (["aa", 5], [[0, *VOCABULARY.tokenize("aa"), 5]]),
        ([5, "aa"], [[5, *VOCABULARY.tokenize("aa")]]),
        (["aa", "b"], [[0, *VOCABULARY.tokenize("aa")], [0, *VOCABULARY.tokenize("b")]]),
        ([[5], [6, 7]], [[5], [6, 7]]),
    ],
)
def test_prompts_come_as_text_ids_or_both_and_singly_or_in_a_list(prompt: object, tokens: list[list[int]]) -> None:
    """Text begins with the beginning of the sequence, ids are taken as they are."""
    assert [list(request.prompt) for request in parse({"prompt": prompt}, VOCABULARY, 64)] == tokens


def test_the_longest_prompt_leaves_room_for_one_token() -> None:
    """A prompt as long as the context is refused with both numbers."""
    assert len(read(prompt=[5] * 63).prompt) == 63
    error = refusal(prompt=[5] * 64)
    assert (error["type"], error["n_prompt_tokens"], error["n_ctx"]) == ("exceed_context_size_error", 64, 64)


@pytest.mark.parametrize(
    ("bias", "understood"),
    [
        ([[5, 1.5]], ((5, 1.5),)),
        ([[5, False]], ((5, -float("inf")),)),
        ({"5": -2}, ((5, -2.0),)),
        ([["aa", 1]], ((VOCABULARY.tokenize("aa")[0], 1.0),)),
        ([[9999, 1], "nonsense", [5]], ()),
    ],
)
def test_biases_come_as_pairs_or_as_an_object(bias: object, understood: tuple[tuple[int, float], ...]) -> None:
    """Ids, numbers as text and pieces name tokens; false bans; what cannot be read is dropped."""
    assert read(logit_bias=bias).sampling.bias == understood


def test_ignore_eos_bans_the_end_after_other_biases() -> None:
    """The ban stands last in the echo, as null."""
    settings = read(logit_bias=[[5, 1.5]], ignore_eos=True).settings
    assert settings["logit_bias"] == [{"bias": 1.5, "token": 5}, {"bias": None, "token": EOS}]


@pytest.mark.parametrize(
    ("samplers", "understood"),
    [
        ("kt", ("top_k", "temperature")),
        (["temp", "nucleus", "novel"], ("temperature", "top_p")),
        ([], ()),
    ],
)
def test_samplers_come_as_letters_or_names(samplers: object, understood: tuple[str, ...]) -> None:
    """Letters and other names are understood, unknown ones are dropped."""
    assert read(samplers=samplers).sampling.samplers == understood


def test_max_tokens_is_another_name_for_n_predict() -> None:
    """`n_predict` goes first."""
    assert read(max_tokens=3).n_predict == 3
    assert read(max_tokens=3, n_predict=5).settings["max_tokens"] == 5


@pytest.mark.parametrize(
    ("grammar", "forced"), [("", None), ("root ::= <[7]>", (7,)), (" root::=<[7]> <[12]> ", (7, 12))]
)
def test_grammars_of_ids_are_read(grammar: str, forced: tuple[int, ...] | None) -> None:
    """Spaces do not matter."""
    assert read(grammar=grammar).forced == forced


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"grammar": 'root ::= "x"'}, "failed to parse grammar"),
        ({"n_predict": -2}, "Field 'n_predict': Value must be between"),
        ({"n_predict": True, "seed": []}, "Field 'seed'"),
        ({"prompt": None}, '"prompt" elements must be'),
        ({"prompt": [512]}, "invalid tokens"),
        ({"stream": "yes"}, "must be boolean, but is string"),
        ({"grammar": 5}, "must be string, but is number"),
    ],
)
def test_what_cannot_be_understood_is_refused(body: dict[str, object], words: str) -> None:
    """The error quotes the field and says what was expected."""
    error = refusal(**body)
    assert error["code"] == 400
    assert words in error["message"]
