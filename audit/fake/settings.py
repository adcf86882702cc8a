"""Settings: what one fake server is asked to be.

In: keyword arguments. Out: a frozen dataclass. Nothing is started here, and nothing is read from files or the
environment. A server without any switch of `Faults` is a clean llama-server look-alike.
"""

from dataclasses import dataclass, field

from audit.errors import UsageError
from audit.fake.switches import Faults, switches

__all__ = ["FakeSettings"]

# Specials, printable ASCII and the newline: fewer ids than these could not spell an ASCII prompt.
_VOCABULARY_MIN = 99
# Faults that count something of which there is at least one.
_COUNTS = frozenset({"jitter_once_in", "prompt_truncated", "slot_wrapped"})


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
        slot_save_path: whether the server was given one; without it a slot's actions are a 501.
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
    slot_save_path: bool = False
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
        for switch in switches():
            value, low = getattr(self.faults, switch.name), int(switch.name in _COUNTS)
            if value is not None and not value >= low:
                raise UsageError(f"fake server: faults.{switch.name} is {value}, but must be at least {low}")
        if self.api_prefix and (not self.api_prefix.startswith("/") or self.api_prefix.endswith("/")):
            raise UsageError(
                f"fake server: api_prefix is {self.api_prefix!r}", hint="begin it with / and end it without"
            )
