"""Answers that say no, with the HTTP status and the fields of OpenAI's error object."""

from __future__ import annotations

from rollwright.errors import EngineError

_STATUS_TO_KIND = {
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Refused(EngineError):
    """A request that is not served.

    Args:
        message: what was given, what was expected, what to do.
        status: HTTP status.
        param: the request's field that is to blame.
        code: a short word for programs.
        retry_after: seconds after which trying again makes sense.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    def body(self) -> dict[str, object]:
        """Return OpenAI's error object."""
        kind = _STATUS_TO_KIND.get(
            self.status, "server_error" if self.status >= 500 else "invalid_request_error"
        )
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
