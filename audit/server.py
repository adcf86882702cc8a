"""Who the server is and what it is doing: its own words as facts.

In go GETs of /health, /props, /slots, /metrics and /v1/models and POSTs of /tokenize, /detokenize and /apply-template,
out come `Attested`, snapshots and frozen prompts. What tells one process from the next is kept apart from what tells
one server from another, and no path, host or user name gets into a fact. This module generates nothing and judges
nothing.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from audit.client import Client, Exchange
from audit.errors import PlanError, ReplyError, ServerError
from audit.plan import Prompt
from audit.record import Attested, Process, PromptFact
from audit.stream import canonical
from audit.wire import decode, error_message

__all__ = ["METRICS", "State", "attest", "freeze", "last_component", "observe"]

METRICS = (
    "n_busy_slots_per_decode",
    "n_decode_total",
    "prompt_tokens_cached_total",
    "prompt_tokens_total",
    "requests_deferred",
    "requests_processing",
    "tokens_predicted_total",
)
# Fields of /props and /v1/models that may hold a path of the server's machine.
_PATH_FIELDS = {"model_path", "model_alias", "id", "name", "model", "aliases"}
# Fields of /props that change with the process or the moment, not with what the server computes.
_PASSING_FIELDS = {"media_marker", "is_sleeping"}
_STATUS_OK, _STATUS_UNAUTHORIZED, _STATUS_LOADING, _STATUS_NOT_OFFERED = 200, 401, 503, 501


def last_component(path: str) -> str:
    """Return what follows the last slash or backslash."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _without_paths(value: Any, field: str = "") -> Any:  # noqa: ANN401 - any JSON value
    """Replace each path by its last component and the digest of the whole; drop what is passing."""
    if isinstance(value, dict):
        kept = {
            key: _without_paths(item, key) for key, item in value.items() if key not in _PASSING_FIELDS | {"created"}
        }
        for key in _PATH_FIELDS & value.keys():
            if isinstance(value[key], str) and last_component(value[key]) != value[key]:
                kept[key + "_sha256"] = hashlib.sha256(value[key].encode()).hexdigest()
        return kept
    if isinstance(value, list):
        return [_without_paths(item, field) for item in value]
    return last_component(value) if isinstance(value, str) and field in _PATH_FIELDS else value


def _checked(exchange: Exchange, client: Client, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON of a GET that must succeed, or say in one line why the server cannot be audited."""
    label = client.address.label
    if exchange.failure is not None:
        kind, message = exchange.failure
        raise ServerError(
            f"{label}: {path} cannot be reached ({kind}): {message}", hint="is llama-server running there?"
        )
    if exchange.status == _STATUS_UNAUTHORIZED:
        raise ServerError(f"{label}: the server refuses the API key", hint="set DETERMINISM_API_KEY or --key-file")
    if exchange.status == _STATUS_LOADING:
        raise ServerError(f"{label}: the server is still loading its model", hint="wait until /health answers 200")
    if exchange.status != _STATUS_OK:
        message = error_message(exchange.body)
        raise ServerError(f"{label}: {path} answers {exchange.status}, so this is no llama-server to audit: {message}")
    try:
        return decode(exchange.body, what=path)
    except ReplyError as error:
        raise ServerError(
            f"{label}: {error.message}", hint="the URL must be a llama-server's, with its prefix if it has one"
        ) from error


@dataclass(frozen=True, kw_only=True)
class State:
    """What a server said it was doing at one moment; metrics are the strings that it printed."""

    health: int | None
    slots: list[tuple[int, bool, int | None]] | None
    metrics: dict[str, str | None] | None
    props: str | None
    process: Process

    @property
    def busy(self) -> bool:
        """Whether a slot works or a request waits, as far as the server tells."""
        printed = self.metrics or {}
        waiting = {printed.get("requests_processing"), printed.get("requests_deferred")}
        return any(processing for _, processing, _ in self.slots or []) or not waiting <= {None, "0"}


def _metrics(exchange: Exchange) -> dict[str, str | None] | None:
    if exchange.status != _STATUS_OK or exchange.failure is not None:
        return None
    values: dict[str, str | None] = dict.fromkeys(METRICS)
    for line in exchange.body.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        short = name.removeprefix("llamacpp:")
        if short in values and name != short:
            values[short] = value.strip()[:40]
    return values


def _slots(exchange: Exchange) -> list[tuple[int, bool, int | None]] | None:
    if exchange.status != _STATUS_OK or exchange.failure is not None:
        return None
    try:
        slots = decode(exchange.body, what="/slots")
        found = [(_count(slot["id"]), slot["is_processing"], _count(slot.get("n_prompt_tokens"))) for slot in slots]
    except (ReplyError, KeyError, TypeError, AttributeError):
        return None
    return [(id_slot, bool(works), held) for id_slot, works, held in found if id_slot is not None] or None


def _count(value: Any) -> int | None:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _props(exchange: Exchange) -> dict[str, Any] | None:
    if exchange.status != _STATUS_OK or exchange.failure is not None:
        return None
    try:
        props = decode(exchange.body, what="/props")
    except ReplyError:
        return None
    return props if isinstance(props, dict) else None


def _process(metrics: Exchange, props: dict[str, Any] | None) -> Process:
    marker = (props or {}).get("media_marker")
    return Process(
        start=metrics.headers.get("process-start-time-unix"),
        media_marker=marker if isinstance(marker, str) else None,
    )


async def observe(client: Client, keep: Callable[[bytes], str], *, health: bool = False) -> State:
    """Ask what the server is doing: three GETs, four with `health`.

    Args:
        client: the connection.
        keep: stores a fact and returns its digest.
        health: ask for /health too.

    Returns: the state; what the server does not offer is None.
    """
    status = (await client.get("/health")).status if health else None
    slots, metrics = await client.get("/slots"), await client.get("/metrics")
    props = _props(await client.get("/props"))
    return State(
        health=status,
        slots=_slots(slots),
        metrics=_metrics(metrics),
        props=None if props is None else keep(canonical(_without_paths(props))),
        process=_process(metrics, props),
    )


def _vocabulary(models: Any) -> int | None:  # noqa: ANN401 - any JSON value
    try:
        count = models["data"][0]["meta"]["n_vocab"]
    except (KeyError, IndexError, TypeError):
        return None
    return _count(count)


async def attest(client: Client, keep: Callable[[bytes], str]) -> Attested:
    """Ask the server who it is.

    Raises: ServerError in one line where it is unreachable, loading, refuses the key, is a router, or no llama-server.
    """
    exchange = await client.get("/props")
    props = _checked(exchange, client, "/props")
    label = client.address.label
    if isinstance(props, dict) and props.get("role") == "router":
        raise ServerError(
            f"{label}: this is a llama-server router, which runs no model itself", hint="give a model server's URL"
        )
    slots = _count(props.get("total_slots")) if isinstance(props, dict) else None
    if not slots:
        raise ServerError(f"{label}: /props names no total_slots, so this is no llama-server to audit")
    models = _checked(await client.get("/v1/models"), client, "/v1/models")
    metrics = await client.get("/metrics")
    settings = props.get("default_generation_settings")
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
    alias = props.get("model_alias") or props.get("model_path")
    build_info = props.get("build_info")
    return Attested(
        build_info=build_info if isinstance(build_info, str) else None,
        model=last_component(alias) if isinstance(alias, str) else None,
        models=keep(canonical(_without_paths(models))),
        n_ctx=_count(n_ctx),
        process=_process(metrics, props),
        props=keep(canonical(_without_paths(props))),
        server_header=exchange.headers.get("server"),
        slots=slots,
        vocabulary=_vocabulary(models),
    )


async def _post(client: Client, path: str, value: Any, field: str) -> Any:  # noqa: ANN401 - any JSON value
    answer = _checked(await client.post(path, canonical(value)), client, path)
    if not isinstance(answer, dict) or field not in answer:
        raise ServerError(f"{client.address.label}: {path} answers without {field!r}")
    return answer[field]


async def freeze(client: Client, prompt: Prompt, *, name: str) -> PromptFact:
    """Turn a filled prompt into token ids once, and ask what text the server makes of them.

    Raises: PlanError where the prompt has fewer tokens than the plan keeps, or none, or ids that the server does not
    know; ServerError.
    """
    text = prompt.text
    if prompt.chat is not None:
        messages = [message.model_dump() for message in prompt.chat]
        text = await _post(client, "/apply-template", {"messages": messages}, "prompt")
    ids = prompt.ids
    if ids is None:
        question = {"content": text, "add_special": prompt.chat is None, "parse_special": True}
        ids = await _post(client, "/tokenize", question, "tokens")
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise PlanError(f"{client.address.label}: prompts.{name} becomes no token ids but {str(ids)[:80]}")
    if prompt.tokens is not None:
        if len(ids) < prompt.tokens:
            raise PlanError(
                f"{client.address.label}: prompts.{name} has {len(ids)} tokens and the plan keeps {prompt.tokens}",
                hint="make its text longer",
            )
        ids = ids[: prompt.tokens]
    try:
        content = await _post(client, "/detokenize", {"tokens": ids}, "content")
    except ServerError as error:
        if prompt.ids is None:
            raise
        raise PlanError(f"{client.address.label}: prompts.{name}: the server cannot read its ids: {error}") from error
    if not isinstance(content, str):
        raise ServerError(f"{client.address.label}: /detokenize answers with {content!r:.80} for text")
    return PromptFact(ids=ids, text=content)
