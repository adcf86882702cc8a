"""Refusals: the error replies of llama-server, as an exception on the way to them.

In: what was wrong. Out: a status and the JSON that goes with it, worded as builds b11434 to b11549 word it.
It never leaves this package: a refused request is a correct reply of a fake server, not a failure of ours.
"""

__all__ = ["RefusalError", "error_body", "type_error"]

_TYPES = {400: "invalid_request_error", 500: "server_error", 501: "not_supported_error"}


class RefusalError(Exception):
    """A request that is answered with an error.

    Args:
        status: the HTTP status.
        message: the words of the error.
        more: keys beside `code`, `message` and `type`; a `type` here replaces the usual one.
    """

    def __init__(self, status: int, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, object] = {
            "error": {"code": status, "message": message, "type": _TYPES.get(status, "server_error"), **more}
        }


def error_body(status: int, message: str, kind: str) -> dict[str, object]:
    """Return the error of a request that reached no route: its keys come in another order than a route's."""
    return {"error": {"message": message, "type": kind, "code": status}}


def type_error(wanted: str, value: object, *, field: str | None = None) -> RefusalError:
    """Return the refusal of a value of the wrong JSON type."""
    names = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object"}
    message = f"[json.exception.type_error.302] type must be {wanted}, but is {names.get(type(value), 'number')}"
    return RefusalError(400, message if field is None else f"Field '{field}': {message}")
