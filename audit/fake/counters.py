"""Counters: what `/metrics` prints.

In: what the engine has just done. Out: the Prometheus text of llama-server, with its names, its help and its six
digits. The two throughput gauges cover the time since they were last read, as there.
"""

from dataclasses import dataclass, field

__all__ = ["Counters"]

_COUNTER, _GAUGE = "counter", "gauge"
_METRICS = (
    ("prompt_tokens_total", _COUNTER, "Number of prompt tokens processed, excluding cached tokens"),
    ("prompt_tokens_cached_total", _COUNTER, "Number of prompt tokens reused from the cache"),
    ("prompt_seconds_total", _COUNTER, "Total time spent processing prompts"),
    ("tokens_predicted_total", _COUNTER, "Number of generation tokens processed"),
    ("tokens_predicted_seconds_total", _COUNTER, "Total time spent generating tokens"),
    (
        "n_decode_total",
        _COUNTER,
        "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
    ),
    ("n_tokens_max", _COUNTER, "Largest observed sequence length (prompt + generation)"),
    ("spec_decode_num_draft_tokens_total", _COUNTER, "Speculative: Total draft tokens generated"),
    (
        "spec_decode_num_accepted_tokens_total",
        _COUNTER,
        "Speculative: Total draft tokens accepted by the target model",
    ),
    ("spec_decode_num_drafts_total", _COUNTER, "Speculative: Total speculative decoding verification steps"),
    ("prompt_tokens_seconds", _GAUGE, "Average prompt throughput in tokens/s"),
    ("predicted_tokens_seconds", _GAUGE, "Average generation throughput in tokens/s"),
    ("requests_processing", _GAUGE, "Number of requests processing"),
    ("requests_deferred", _GAUGE, "Number of requests deferred"),
    ("n_busy_slots_per_decode", _GAUGE, "Average number of busy slots per llama_decode() call"),
)


@dataclass(slots=True)
class _Rate:
    """Tokens and milliseconds since the last reading."""

    tokens: int = 0
    ms: float = 0.0

    def add(self, tokens: int, ms: float) -> None:
        self.tokens += tokens
        self.ms += ms

    def read(self) -> float:
        per_second = self.tokens / self.ms * 1e3 if self.ms else 0.0
        self.tokens, self.ms = 0, 0.0
        return per_second


@dataclass(slots=True)
class Counters:
    """The counts of one process, all from 0."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_ms: float = 0.0
    tokens_predicted: int = 0
    predicted_ms: float = 0.0
    decodes: int = 0
    busy_slots: int = 0
    tokens_max: int = 0
    _prompt_rate: _Rate = field(default_factory=_Rate)
    _predicted_rate: _Rate = field(default_factory=_Rate)

    def add_decode(self, *, busy: int) -> None:
        """Count one decode with so many busy slots."""
        self.decodes += 1
        self.busy_slots += busy

    def add_prompt(self, processed: int, cached: int, ms: float) -> None:
        """Count one prompt that is done."""
        self.prompt_tokens += processed
        self.prompt_tokens_cached += cached
        self.prompt_ms += ms
        self._prompt_rate.add(processed, ms)

    def add_prediction(self, tokens: int, ms: float) -> None:
        """Count one generation that is over; its first token came with the prompt and counts for no throughput."""
        self.tokens_predicted += tokens
        self.predicted_ms += ms
        self._predicted_rate.add(max(0, tokens - 1), ms)

    def text(self, *, processing: int, deferred: int) -> str:
        """Print the metrics; reading them resets the throughput gauges."""
        values = (
            self.prompt_tokens,
            self.prompt_tokens_cached,
            self.prompt_ms / 1e3,
            self.tokens_predicted,
            self.predicted_ms / 1e3,
            self.decodes,
            self.tokens_max,
            0,
            0,
            0,
            self._prompt_rate.read(),
            self._predicted_rate.read(),
            processing,
            deferred,
            self.busy_slots / self.decodes if self.decodes else 0,
        )
        lines = []
        for (name, kind, text), value in zip(_METRICS, values, strict=True):
            # %g, six significant digits: what a C++ stream prints by default.
            lines += [f"# HELP llamacpp:{name} {text}", f"# TYPE llamacpp:{name} {kind}", f"llamacpp:{name} {value:g}"]
        return "\n".join(lines) + "\n"
