"""Errors that clients receive, in the OpenAI API's format."""

from typing import Any, NoReturn


class ApiError(Exception):
  """An error answer.

  Attributes:
    status: the HTTP status.
    message: one line: what is wrong, and what was expected.
    kind: `type` of the error object.
    param: the invalid field of the request. None if no single field is.
    code: a machine-readable name of the error, or None.
    retry_after_s: seconds after which a retry may succeed. None if it cannot.
  """

  def __init__(
    self,
    status: int,
    message: str,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    retry_after_s: int | None = None,
  ):
    super().__init__(message)
    self.status, self.message, self.kind = status, message, kind
    self.param, self.code, self.retry_after_s = param, code, retry_after_s

  def body(self) -> dict[str, Any]:
    """Returns the error object."""
    return {
      "error": {
        "message": self.message,
        "type": self.kind,
        "param": self.param,
        "code": self.code,
      }
    }


def refuse_field(
  param: str, value: Any, expected: str, code: str | None = None
) -> NoReturn:
  """Raises the error for a field with an invalid value."""
  shown = repr(value)
  shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
  raise ApiError(
    400, f"{param}={shown}: expected {expected}", param=param, code=code
  )


def overloaded(message: str) -> ApiError:
  """Returns the error of a server that is at its limit of requests."""
  return ApiError(
    429, message, "rate_limit_error", None, "rate_limit_exceeded", 1
  )


def unavailable(message: str, code: str) -> ApiError:
  """Returns the error of a server that cannot answer now."""
  return ApiError(503, message, "service_unavailable_error", None, code, 5)
