"""Sampler: one token out of a row, by the sampler settings of a request.

In: a `Row`, a `Sampling`, the one token that a grammar allows (or None). Out: a `Choice`. Of llama-server's samplers
top_k, top_p, min_p and temperature act, in the order of the request; the others are accepted and do nothing, as
they do at their neutral values. The reported logprobs are the row's own and are never touched here.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.fake.model import Row

__all__ = ["Choice", "Sampling", "choose", "generator"]

SEED_RANDOM = 0xFFFFFFFF  # asks for a seed that nobody is told


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings that decide which token is taken.

    Attributes:
        seed: below 2^32; 4294967295 means a random one.
        temperature: 0 takes the best token, if `temperature` is among the samplers.
        samplers: names, in the order in which they act.
        top_k: at most so many candidates; 0 or less for all.
        top_p: the smallest set of best candidates with this share of the probability; 1 for all.
        min_p: candidates with at least this share of the best one's probability; 0 for all.
        bias: (id, nats) added to logits; minus infinity bans an id.
    """

    seed: int
    temperature: float
    samplers: tuple[str, ...]
    top_k: int
    top_p: float
    min_p: float
    bias: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One sampled token and what it was sampled from.

    Attributes:
        token: the id.
        candidates: ids that were left at the end of the chain, best first.
        probabilities: of the candidates, at the end of the chain.
    """

    token: int
    candidates: npt.NDArray[np.intp]
    probabilities: npt.NDArray[np.float64]


_SURE = np.ones(1)


def generator(seed: int) -> np.random.Generator:
    """Return the stream of random numbers that one generation draws from, one number a step."""
    return np.random.Generator(np.random.PCG64(None if seed == SEED_RANDOM else seed))


def choose(row: Row, sampling: Sampling, random: np.random.Generator, *, allowed: int | None = None) -> Choice:
    """Take one token.

    Args:
        row: the position's numbers.
        sampling: how to choose.
        random: one number is drawn unless the choice is greedy.
        allowed: the only id that a grammar admits, or None for all.
    """
    greedy = sampling.temperature <= 0.0 and "temperature" in sampling.samplers
    order, logits = _admissible(row, sampling.bias, allowed, best_only=greedy)
    if greedy:
        # The other samplers never drop the best candidate, so it is the one that is left.
        return Choice(token=int(order[0]), candidates=order[:1], probabilities=_SURE)
    for name in sampling.samplers:
        logits = _applied(name, logits, sampling)
    probabilities = _softmax(logits)
    index = int(np.searchsorted(np.cumsum(probabilities), random.random(), side="right"))
    index = min(index, len(logits) - 1)
    return Choice(token=int(order[index]), candidates=order[: len(logits)], probabilities=probabilities)


def _admissible(
    row: Row, bias: tuple[tuple[int, float], ...], allowed: int | None, *, best_only: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return the ids that may be taken, best first, and their logits after the bias."""
    if allowed is not None:
        return np.array([allowed], dtype=np.intp), np.zeros(1)
    if all(value == -np.inf for _, value in bias):
        banned = {token for token, _ in bias}
        # The best id that is not banned is among the first few.
        order = row.order[: len(banned) + 1] if best_only else row.order
        order = order[[token not in banned for token in order.tolist()]]
        return order, row.logits[order].astype(np.float64)
    logits = row.logits.astype(np.float64)
    for token, value in bias:
        logits[token] += value
    order = np.argsort(-logits, kind="stable")
    order = order[np.isfinite(logits[order])]
    return order, logits[order]


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(logits - logits[0])
    return np.asarray(powers / powers.sum(), dtype=np.float64)


def _applied(name: str, logits: npt.NDArray[np.float64], sampling: Sampling) -> npt.NDArray[np.float64]:
    """Return the logits (best first) that one sampler leaves; at least one stays."""
    if name == "temperature":
        return logits / sampling.temperature
    if name == "top_k" and sampling.top_k > 0:
        return logits[: sampling.top_k]
    if name == "top_p" and sampling.top_p < 1.0:
        count = int(np.searchsorted(np.cumsum(_softmax(logits)), sampling.top_p)) + 1
        return logits[:count]
    if name == "min_p" and sampling.min_p > 0.0:
        return logits[: max(1, int((_softmax(logits) >= sampling.min_p * _softmax(logits)[0]).sum()))]
    return logits
