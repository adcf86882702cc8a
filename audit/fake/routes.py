"""Routes: what a fake server answers to each path.

In: parsed requests. Out: replies on the connection they came by. The order of refusals is llama-server's: a model that
still loads (503), a wrong key (401, `/health` excepted), an unknown path (404), and only then the body. Routes
of the web page, of chat, of other vendors' dialects and of embeddings are not there.
"""

import re
from collections.abc import Awaitable, Callable
from time import monotonic, time

import msgspec

from audit.fake import reply
from audit.fake.echo import default_settings
from audit.fake.engine import Engine
from audit.fake.faults import FaultPoints, joined
from audit.fake.refusal import RefusalError, error_body, type_error
from audit.fake.request import parse
from audit.fake.settings import FakeSettings
from audit.fake.slot import Cancelled, Event, Finished, Stepped, Task
from audit.fake.transport import Connection, HttpRequest
from audit.fake.vocabulary import BOS, EOS, Vocabulary

__all__ = ["Routes"]

_ENCODE = msgspec.json.Encoder().encode
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_CAPS = (
    *("object_arguments", "parallel_tool_calls", "preserve_reasoning", "reasoning_effort", "string_content"),
    *("system_role", "tool_calls", "tools", "typed_content"),
)
_CAPS_GIVEN = frozenset({"string_content", "system_role"})
_FTYPE = "all F32"
_OPEN = frozenset({"/health", "/v1/health"})

Handler = Callable[[HttpRequest, Connection], Awaitable[None]]


class Routes:
    """The routes of one process.

    Args:
        settings: what this server is.
        vocabulary: its pieces.
        engine: who computes.
        faults: the points where something may go wrong.
        start: what `Process-Start-Time-Unix` says: no time, but constant for a process.
    """

    def __init__(
        self, settings: FakeSettings, vocabulary: Vocabulary, engine: Engine, faults: FaultPoints, *, start: int
    ) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._engine = engine
        self._faults = faults
        self._start = start
        self._created = int(time())
        table: dict[tuple[str, str], Handler] = {
            ("GET", "/health"): self._health,
            ("GET", "/v1/health"): self._health,
            ("GET", "/props"): self._props,
            ("POST", "/props"): self._change_props,
            ("GET", "/v1/models"): self._models,
            ("GET", "/models"): self._models,
            ("GET", "/slots"): self._slots,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("POST", "/apply-template"): self._apply_template,
            ("POST", "/completion"): self._completion,
            ("POST", "/completions"): self._completion,
        }
        self._table = {(method, settings.api_prefix + path): handler for (method, path), handler in table.items()}

    async def answer(self, request: HttpRequest, connection: Connection) -> None:
        """Answer one request, whatever it is."""
        if self._faults.refusing():
            connection.abort()
        elif self._faults.loading(monotonic()):
            await _json(connection, error_body(503, "Loading model", "unavailable_error"), status=503)
        elif not self._authorized(request):
            await _json(connection, error_body(401, "Invalid API Key", "authentication_error"), status=401)
        elif (handler := self._handler(request)) is None:
            await _json(connection, error_body(404, "File Not Found", "not_found_error"), status=404)
        else:
            try:
                await handler(request, connection)
            except RefusalError as refusal:
                await _json(connection, refusal.body, status=refusal.status)

    def _handler(self, request: HttpRequest) -> Handler | None:
        actions = f"{self._settings.api_prefix}/slots/"
        if request.method == "POST" and request.path.startswith(actions):
            return self._slot_action
        return self._table.get((request.method, request.path))

    def _authorized(self, request: HttpRequest) -> bool:
        """Say whether the key fits; the open paths are compared without any prefix, as there."""
        key = self._settings.api_key
        if key is None or request.path in _OPEN:
            return True
        given = request.headers.get("authorization", "") or request.headers.get("x-api-key", "")
        return given.removeprefix("Bearer ") == key

    async def _health(self, _request: HttpRequest, connection: Connection) -> None:
        await _json(connection, {"status": "ok"})

    async def _props(self, _request: HttpRequest, connection: Connection) -> None:
        settings = self._settings
        defaults = {"params": default_settings(), "n_ctx": settings.ctx_per_slot}
        body = {
            "default_generation_settings": defaults,
            "total_slots": settings.slots,
            "model_alias": settings.model_name,
            "model_ftype": _FTYPE,
            "model_path": f"{settings.model_name}.gguf",
            "modalities": {"vision": False, "video": False, "audio": False},
            # Random at every start there; at least another one at every start here.
            "media_marker": f"<__media_{self._start:032x}__>",
            "endpoint_slots": self._faults.offers("slots", settings),
            "endpoint_props": False,
            "endpoint_metrics": settings.metrics and not settings.faults.metrics_missing,
            "ui": False,
            "ui_settings": {},
            "chat_template": _TEMPLATE,
            "chat_template_caps": {f"supports_{name}": name in _CAPS_GIVEN for name in _CAPS},
            "bos_token": self._vocabulary.pieces[BOS],
            "eos_token": self._vocabulary.pieces[EOS],
            "build_info": self._faults.build_info(settings.build_info),
            "is_sleeping": False,
            "cors_proxy_enabled": False,
        }
        await _json(connection, body)

    async def _change_props(self, _request: HttpRequest, _connection: Connection) -> None:
        raise RefusalError(501, "This server does not support changing global properties. Start it with `--props`")

    async def _models(self, _request: HttpRequest, connection: Connection) -> None:
        name, ctx = self._settings.model_name, self._settings.ctx_per_slot
        details = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}
        details |= {"parameter_size": "", "quantization_level": ""}
        # There are no weights, so there is nothing to count.
        meta = {"vocab_type": 1, "n_vocab": self._vocabulary.size, "n_ctx": ctx, "n_ctx_train": ctx}
        model = {
            **dict.fromkeys(("name", "model"), name),
            **dict.fromkeys(("modified_at", "size", "digest"), ""),
            "type": "model",
            "description": "",
            "tags": [""],
            "capabilities": ["completion"],
            "parameters": "",
            "details": details,
        }
        data = {
            "id": name,
            "aliases": [name],
            "tags": [],
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": self._created,
            "owned_by": "llamacpp",
            "meta": {**meta, "n_embd": 0, "n_params": 0, "size": 0, "ftype": _FTYPE},
        }
        await _json(connection, {"models": [model], "object": "list", "data": [data]})

    async def _slots(self, _request: HttpRequest, connection: Connection) -> None:
        if not self._faults.offers("slots", self._settings):
            raise RefusalError(501, "This server does not support slots endpoint. Start it with `--slots`")
        await _json(connection, [reply.slot_state(slot, self._settings) for slot in self._engine.slots])

    async def _slot_action(self, request: HttpRequest, connection: Connection) -> None:
        """Erase a slot; to save and restore one is not imitated."""
        if not self._settings.slot_save_path:
            raise RefusalError(501, "This server does not support slots action. Start it with `--slot-save-path`")
        # The number is read as far as it goes, and taken modulo the slots, as that of a completion is.
        number = re.match(r"[+-]?[0-9]+", request.path.rsplit("/", 1)[1])
        if number is None:
            raise RefusalError(400, "Invalid slot ID")
        if request.query.get("action") != "erase":
            raise RefusalError(400, "Invalid action")
        slot = self._engine.slots[int(number[0]) % len(self._engine.slots)]
        await _json(connection, {"id_slot": int(number[0]), "n_erased": slot.erase()})

    async def _metrics(self, _request: HttpRequest, connection: Connection) -> None:
        if not self._faults.offers("metrics", self._settings):
            raise RefusalError(501, "This server does not support metrics endpoint. Start it with `--metrics`")
        engine = self._engine
        text = engine.counters.text(processing=engine.processing, deferred=engine.deferred)
        headers = {"Process-Start-Time-Unix": str(self._start)}
        await connection.reply(200, text.encode("ascii"), content_type="text/plain; version=0.0.4", headers=headers)

    async def _tokenize(self, request: HttpRequest, connection: Connection) -> None:
        body = _object(request.body)
        content = body.get("content", "")
        add_special, parse_special = body.get("add_special") is True, body.get("parse_special") is not False
        if not isinstance(content, str):
            raise type_error("string", content)
        tokens = self._vocabulary.tokenize(content, add_special=add_special, parse_special=parse_special)
        if body.get("with_pieces") is True:
            pieces = [{"id": token, "piece": self._vocabulary.pieces[token]} for token in tokens]
            await _json(connection, {"tokens": pieces})
        else:
            await _json(connection, {"tokens": tokens})

    async def _detokenize(self, request: HttpRequest, connection: Connection) -> None:
        tokens = _object(request.body).get("tokens", [])
        if not isinstance(tokens, list):
            raise type_error("array", tokens)
        size = self._vocabulary.size
        for token in tokens:
            if not isinstance(token, int):
                raise type_error("number", token)
            if not 0 <= token < size:
                message = f"vector::_M_range_check: __n (which is {token % 2**64}) >= this->size() (which is {size})"
                raise RefusalError(500, message)
        await _json(connection, {"content": self._vocabulary.detokenize(tokens)})

    async def _apply_template(self, request: HttpRequest, connection: Connection) -> None:
        body = _object(request.body)
        if "messages" not in body:
            raise RefusalError(400, "'messages' is required")
        messages = body["messages"]
        if not isinstance(messages, list):
            raise RefusalError(400, "Expected 'messages' to be an array")
        prompt = "".join([_message(message) for message in messages])
        if body.get("add_generation_prompt") is not False:
            prompt += "<|im_start|>assistant\n"
        await _json(connection, {"prompt": prompt})

    async def _completion(self, request: HttpRequest, connection: Connection) -> None:
        if (pieces := self._faults.repeated(request.body)) is not None:
            await connection.again(pieces)
            return
        ordinal = self._faults.arrive()
        if (instead := self._faults.instead(ordinal)) is not None:
            kind, headers = instead.content_type, instead.headers
            await connection.reply(instead.status, instead.body, content_type=kind, headers=headers)
            return
        asked = parse(_decoded(request.body), self._vocabulary, self._settings.ctx_per_slot)
        self._faults.lead(connection, ordinal, request.body)
        try:
            tasks = [
                self._engine.submit(self._faults.understood(one), connection.gone, ordinal=ordinal) for one in asked
            ]
            await (self._stream(tasks, connection) if asked[0].stream else self._whole(tasks, connection))
        finally:
            connection.take_way(None)

    async def _whole(self, tasks: list[Task], connection: Connection) -> None:
        bodies: list[bytes] = []
        for task in tasks:
            event = await task.events.get()
            if not isinstance(event, Finished):
                await self._failed(event, connection)
                return
            bodies.append(self._event_body(event))
        await connection.reply(200, joined(bodies))

    async def _failed(self, event: Event, connection: Connection) -> None:
        """Answer a task that did not finish; a client that went away gets no answer."""
        if isinstance(event, RefusalError):
            raise event
        connection.abort()

    async def _stream(self, tasks: list[Task], connection: Connection) -> None:
        """Send events as they come; an error before the first one is plain JSON, a later one is an event."""
        begun = False
        for task in tasks:
            event: Event | None = None
            while not isinstance(event, Finished):
                event = await task.events.get()
                if isinstance(event, Cancelled) or (isinstance(event, RefusalError) and not begun):
                    await self._failed(event, connection)
                    return
                if not begun:
                    await connection.begin_stream()
                    begun = True
                await connection.send_event(self._event_body(event))
                if isinstance(event, RefusalError):
                    break
        await connection.end_stream()

    def _event_body(self, event: Stepped | Finished | RefusalError) -> bytes:
        if isinstance(event, Stepped):
            body = reply.event(event, self._vocabulary)
            return self._faults.event(body, event.generation, event.count - 1)
        if isinstance(event, Finished):
            return self._faults.whole(reply.whole(event, self._settings, self._vocabulary), event.generation)
        return _ENCODE(event.body)


async def _json(connection: Connection, body: object, *, status: int = 200) -> None:
    await connection.reply(status, _ENCODE(body))


def _decoded(body: bytes) -> object:
    """Return the JSON of a body, or refuse it with the words of the server's JSON library."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        message = f"[json.exception.parse_error.101] parse error at line 1, column 1: {error}"
        raise RefusalError(400, message) from error


def _object(body: bytes) -> dict[str, object]:
    decoded = _decoded(body)
    if not isinstance(decoded, dict):
        raise RefusalError(400, "[json.exception.type_error.306] cannot use value() with array")
    return decoded


def _message(message: object) -> str:
    """Return one chat message as the template writes it."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        raise RefusalError(400, "All non-assistant messages must contain 'content'")
    return f"<|im_start|>{message.get('role', 'user')}\n{message['content']}<|im_end|>\n"
