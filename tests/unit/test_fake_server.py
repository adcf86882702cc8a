"""The fake as a server: address, keys, prefix, restart, what HTTP allows, and how it ends."""

import asyncio
import socket
from typing import Any

import httpx
import pytest

from audit.errors import UsageError
from audit.fake import FakeServer, FakeSettings, FakeThread, serve_forever, transport
from audit.fake.engine import Engine

BODY: dict[str, Any] = {"prompt": [40, 50, 60], "n_predict": 4, "temperature": 0.0, "ignore_eos": True}


def client_of(url: str, **headers: str) -> httpx.Client:
    """A client that leans on nothing from the environment."""
    return httpx.Client(base_url=url, trust_env=False, timeout=10, headers=headers)


def exchange(fake: FakeThread, *parts: bytes) -> bytes:
    """Send raw bytes on one connection, part by part, and return all that comes back until the server closes it."""
    port = int(fake.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


@pytest.mark.parametrize(
    ("field", "value"),
    [("slots", 0), ("ctx_per_slot", 1), ("vocabulary", 98), ("step_ms", -1), ("step_ms", float("nan")), ("ubatch", 0)],
)
def test_a_server_that_cannot_be_is_refused(field: str, value: float) -> None:
    """The error names the field and the value."""
    with pytest.raises(UsageError, match=f"{field} is {value}"):
        FakeSettings(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["llm", "/llm/"])
def test_a_prefix_begins_with_a_slash_and_ends_without(prefix: str) -> None:
    """Otherwise no path could match."""
    with pytest.raises(UsageError, match="api_prefix"):
        FakeSettings(api_prefix=prefix)


def test_a_key_is_asked_for_everywhere_but_at_health() -> None:
    """A wrong or missing key is a 401 even for unknown paths; both header names are understood."""
    with FakeThread(FakeSettings(api_key="secret")) as fake:
        with client_of(fake.url) as client:
            assert client.get("/health").status_code == 200
            for path in ("/props", "/v1/models", "/slots", "/metrics", "/novel"):
                response = client.get(path)
                assert response.status_code == 401
                error = {"message": "Invalid API Key", "type": "authentication_error", "code": 401}
                assert response.json() == {"error": error}
        for headers, status in (
            ({"Authorization": "Bearer secret"}, 200),
            ({"X-Api-Key": "secret"}, 200),
            ({"Authorization": "Bearer wrong"}, 401),
        ):
            with client_of(fake.url, **headers) as client:
                assert client.get("/props").status_code == status


def test_a_prefix_is_part_of_every_path() -> None:
    """With it routes answer, without it they are unknown."""
    with FakeThread(FakeSettings(api_prefix="/llm")) as fake, client_of(fake.url) as client:
        assert fake.url.endswith("/llm")
        assert client.post("/completion", json=BODY).status_code == 200
        assert client.post("/slots/0?action=erase").status_code == 501
        assert client.get(fake.url.removesuffix("/llm") + "/props").status_code == 404


def test_a_slot_is_erased_where_there_is_a_path_to_save_it() -> None:
    """Its tokens are counted and gone; the number is taken modulo the slots; without a path an action is a 501."""
    with FakeThread(FakeSettings(slots=2, slot_save_path=True)) as fake, client_of(fake.url) as client:
        steps = client.post("/completion", json=BODY | {"id_slot": 1, "cache_prompt": True}).json()["tokens_cached"]
        answers = [client.post(f"/slots/{name}?action=erase") for name in ("3", "1", "one")]
        assert [answer.status_code for answer in answers] == [200, 200, 400]
        assert [answer.json().get("n_erased") for answer in answers] == [steps, 0, None]
        assert client.post("/slots/1?action=save").status_code == 400
        again = client.post("/completion", json=BODY | {"id_slot": 1, "cache_prompt": True}).json()
        assert again["timings"]["cache_n"] == 0


@pytest.mark.parametrize(("field", "path"), [("metrics", "/metrics"), ("slots_endpoint", "/slots")])
def test_what_is_not_offered_is_a_501_and_said_in_props(field: str, path: str) -> None:
    """A switched-off endpoint names the flag that would switch it on."""
    with FakeThread(FakeSettings(**{field: False})) as fake, client_of(fake.url) as client:  # type: ignore[arg-type]
        response = client.get(path)
        assert response.status_code == 501
        assert f"--{path[1:]}" in response.json()["error"]["message"]
        assert client.get("/props").json()["endpoint_" + path[1:]] is False


def test_identity_comes_from_the_settings() -> None:
    """Build, model, slots and context are told as they were set."""
    settings = FakeSettings(slots=3, ctx_per_slot=99, build_info="b7-toy", model_name="toy", vocabulary=120)
    with FakeThread(settings) as fake, client_of(fake.url) as client:
        props, models = client.get("/props").json(), client.get("/v1/models").json()
        assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (3, 99)
        assert (props["build_info"], props["model_alias"], props["model_path"]) == ("b7-toy", "toy", "toy.gguf")
        assert models["data"][0]["meta"]["n_vocab"] == 120
        assert client.post("/completion", json=BODY).json()["model"] == "toy"


def test_equal_seeds_answer_alike_and_others_differ() -> None:
    """Two servers are one model exactly if their seeds are equal."""
    contents = []
    for seed in (0, 0, 1):
        with FakeThread(FakeSettings(seed=seed)) as fake, client_of(fake.url) as client:
            contents.append(client.post("/completion", json=BODY).json()["content"])
    assert contents[0] == contents[1] != contents[2]


def test_a_restart_keeps_the_port_and_forgets_the_rest() -> None:
    """Old connections are dropped, counters and caches are empty, and the process names another start."""
    with FakeThread(FakeSettings()) as fake:
        url = fake.url
        with client_of(url) as client:
            client.post("/completion", json=BODY)
            start = client.get("/metrics").headers["process-start-time-unix"]
        fake.restart()
        with client_of(url) as client:
            assert fake.url == url
            response = client.get("/metrics")
            assert response.headers["process-start-time-unix"] != start
            assert "llamacpp:n_decode_total 0" in response.text.splitlines()
            assert client.post("/completion", json=BODY).json()["timings"]["cache_n"] == 0


def test_a_restart_drops_what_is_running() -> None:
    """A client in the middle of a generation sees its connection end."""

    async def scenario() -> None:
        async with FakeServer(FakeSettings(step_ms=5.0)) as server, httpx.AsyncClient(trust_env=False) as client:
            body = BODY | {"n_predict": 500, "stream": True}
            request = client.build_request("POST", f"{server.url}/completion", json=body)
            response = await client.send(request, stream=True)
            await server.restart()
            with pytest.raises(httpx.TransportError):
                await response.aread()
            assert (await client.get(f"{server.url}/slots")).json()[0]["is_processing"] is False

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_refused() -> None:
    """The error names the port, in a thread as well as on a loop."""
    with FakeThread(FakeSettings()) as fake:
        port = int(fake.url.rpartition(":")[2])
        with pytest.raises(UsageError, match=str(port)), FakeThread(FakeSettings(), port=port):
            pass


def test_a_thread_ends_with_its_context() -> None:
    """Afterwards nobody listens."""
    with FakeThread(FakeSettings()) as fake:
        url = fake.url
    with client_of(url) as client, pytest.raises(httpx.ConnectError):
        client.get("/health")


def test_serving_for_ever_tells_its_address_and_ends_when_cancelled() -> None:
    """The address is told once, and a cancelled server leaves the port."""

    async def scenario() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        serving = asyncio.create_task(serve_forever(FakeSettings(), 0, on_ready=told.put_nowait))
        url = await told.get()
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert told.empty()

    asyncio.run(scenario())


def test_a_broken_engine_is_told_and_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the fake closes connections, reaches the loop's handler, and is raised where the server ends."""

    def broken(_engine: Engine, _slot: object, _task: object) -> bool:
        raise ZeroDivisionError

    async def scenario() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
        async with FakeServer(FakeSettings()) as server, httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.post(f"{server.url}/completion", json=BODY)
            server._process = None
        return told

    monkeypatch.setattr(Engine, "_start", broken)
    told = asyncio.run(scenario())
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]


def test_requests_may_come_in_pieces_or_all_at_once() -> None:
    """A body cut anywhere is read, and two requests in one packet get two replies."""
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    body = b'{"content":"aa"}'
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with FakeThread(FakeSettings()) as fake:
        assert exchange(fake, request + last).count(b'{"status":"ok"}') == 2
        assert exchange(fake, head[:20], head[20:] + body[:5], body[5:] + last).count(b"HTTP/1.1 200 OK") == 2


def test_a_client_that_waits_for_leave_gets_it() -> None:
    """`Expect: 100-continue` is answered before the body is sent."""
    head = (
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    leave = b"HTTP/1.1 100 Continue\r\n\r\n"
    with FakeThread(FakeSettings()) as fake:
        port = int(fake.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(len(leave), socket.MSG_WAITALL) == leave
            connection.sendall(b"{}")
            assert connection.recv(15, socket.MSG_WAITALL) == b"HTTP/1.1 200 OK"


def test_what_is_no_http_is_a_400() -> None:
    """Nonsense is answered and the connection closed."""
    with FakeThread(FakeSettings()) as fake:
        received = exchange(fake, b"nonsense\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"Connection: close" in received


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which nothing comes is closed after the promised time."""
    monkeypatch.setattr(transport, "_IDLE_S_MAX", 0.05)
    with FakeThread(FakeSettings()) as fake:
        assert exchange(fake) == b""


def test_the_head_of_a_reply_is_llama_servers() -> None:
    """Header names, order and values are those of the original, to the byte."""
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n"
        b"Content-Type: application/json; charset=utf-8\r\nContent-Length: 15\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
    )
    with FakeThread(FakeSettings()) as fake:
        received = exchange(fake, request, request.replace(b"/health", b"/novel"))
    assert received.startswith(head + b'{"status":"ok"}HTTP/1.1 404 Not Found\r\n')
