"""Settings: what one fake server is asked to be.

In: keyword arguments. Out: frozen dataclasses. Nothing is started here, and nothing is read from files or the
environment. Every fault is one switch of `Faults`; a server without any is a clean llama-server look-alike.
"""

from dataclasses import dataclass, field

from audit.errors import UsageError

__all__ = ["FakeSettings", "Faults"]

# Specials, printable ASCII and the newline: fewer ids than these could not spell an ASCII prompt.
_VOCABULARY_MIN = 99


@dataclass(frozen=True)
class Faults:
    """What is wrong with a fake server: one switch a fault, all off by default.

    Attributes:
        one_ulp: the index of the completion (0-based, counted over the completed generations of one process) of whose
            middle step the last reported top-k logprob is moved down by one ULP; nothing if it reports no logprobs.
        seed_ignored: every request is sampled with seed 0, whatever it asks and whatever is echoed.
        temperature_ignored: every request is sampled at temperature 0, whatever it asks and whatever is echoed.
        serialized: one request is processed at a time, although every reply is 200 and names the slot as asked.
        jitter_concurrent: logits move by rounding noise in a decode that holds more than one slot.
        jitter_mixed_batch: the same, but only where another slot of the decode holds a different prompt.
        jitter_cached: logits move by rounding noise in a reply whose `cache_n` is above 0.
        loading_s: seconds after each start in which every route answers 503 `Loading model`.
        swap_after: the count of completions after which another model (same identity) answers.
    """

    one_ulp: int | None = None
    seed_ignored: bool = False
    temperature_ignored: bool = False
    serialized: bool = False
    jitter_concurrent: bool = False
    jitter_mixed_batch: bool = False
    jitter_cached: bool = False
    loading_s: float = 0.0
    swap_after: int | None = None


@dataclass(frozen=True)
class FakeSettings:
    """One fake server, as `llama-server` would be described by its command line.

    Attributes:
        slots: count of parallel sequences.
        ctx_per_slot: tokens that one slot holds, prompt and generation together.
        vocabulary: count of token ids.
        seed: which toy model answers; equal seeds give equal numbers.
        step_ms: time of one decode, however many slots it holds; below 1 ms it is right on average only.
        prefill_ms_per_token: time that each prompt token adds to its decode.
        metrics: whether `/metrics` answers or is a 501.
        slots_endpoint: whether `/slots` answers or is a 501.
        api_key: the key that every route but `/health` asks for, or None.
        api_prefix: what every path begins with, such as `/llm`.
        build_info: the build that `/props` names.
        model_name: the model that `/props`, `/v1/models` and every reply name.
        ubatch: physical batch; one decode takes up to four times as many tokens, as llama-server's defaults do.
        faults: what is wrong with this server.

    Raises: UsageError, for a value no server could have.
    """

    slots: int = 8
    ctx_per_slot: int = 1024
    vocabulary: int = 512
    seed: int = 0
    step_ms: float = 0.3
    prefill_ms_per_token: float = 0.02
    metrics: bool = True
    slots_endpoint: bool = True
    api_key: str | None = None
    api_prefix: str = ""
    build_info: str = "b0-fake"
    model_name: str = "fake-512"
    ubatch: int = 512
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        """Refuse values that no server could have, naming the field."""
        least = {"slots": 1, "ctx_per_slot": 2, "vocabulary": _VOCABULARY_MIN, "seed": 0, "ubatch": 1}
        least |= {"step_ms": 0, "prefill_ms_per_token": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if not value >= low:
                raise UsageError(f"fake server: {name} is {value}, but must be at least {low}")
        if self.faults.loading_s < 0:
            raise UsageError(f"fake server: faults.loading_s is {self.faults.loading_s}, but must be at least 0")
        if self.api_prefix and (not self.api_prefix.startswith("/") or self.api_prefix.endswith("/")):
            raise UsageError(
                f"fake server: api_prefix is {self.api_prefix!r}", hint="begin it with / and end it without"
            )
