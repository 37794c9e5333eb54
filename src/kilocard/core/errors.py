"""The one error tree.

    KilocardError                      500  exit 1
    ├── SpecError                      400  exit 2   the cluster file is wrong
    ├── UsageError                     400  exit 2   the command line is wrong
    ├── TraceError                     400  exit 2   a file of requests can't be read
    ├── ClientError                    400  exit 1   "they" (the client) broke it
    │   ├── Unauthorized               401   no API key, or one that is not known here
    │   ├── Forbidden                  403   a known key that may not do this
    │   ├── NotFound                   404
    │   ├── MethodNotAllowed           405
    │   ├── PoisonRequest              422   replicas died of it; refused for a while
    │   ├── BodyTooLarge               413
    │   ├── UrlTooLong                 414
    │   ├── UnsupportedMedia           415   a body in a coding that is not read here
    │   ├── HeaderTooLarge             431
    │   ├── RequestTimeout             408   the client took too long to send its request
    │   └── RateLimited                429   the tenant's own limit
    ├── CapacityError                  503  exit 1   "we" have no room now; always with Retry-After
    ├── UpstreamError                  502  exit 1   a replica broke it
    │   └── UpstreamTimeout            504
    ├── EngineError                    500  exit 1   an engine can't be started or understood
    ├── StoreError                     500  exit 1   keys, counts or usage can't be read or written
    ├── PlanError                      422  exit 1   a plan that no engine could run
    └── BackendError                   500  exit 1   processes, ports, GPUs
        └── GpuShortage                500

Each class maps to one HTTP status and one exit code. `code` is the machine-readable reason that clients and
metrics see; it is a closed set per class, never text from a client.
"""

from __future__ import annotations


class KilocardError(Exception):
    """Base of all errors that kilocard raises on purpose. `str(error)` is fit for the user's eyes."""

    http_status: int = 500
    exit_code: int = 1
    #: OpenAI's `error.type`
    kind: str = "internal_error"
    #: OpenAI's `error.code`: the reason, from a closed list
    default_code: str = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        #: seconds until it is worth asking again, or None
        self.retry_after = retry_after


class SpecError(KilocardError):
    """The cluster file can't be used. `str()` lists every problem, one a line."""

    http_status = 400
    exit_code = 2
    kind = default_code = "invalid_cluster_file"


class UsageError(KilocardError):
    """The command line asks for something that makes no sense."""

    http_status = 400
    exit_code = 2
    kind = default_code = "usage_error"


class TraceError(KilocardError):
    """A trace (a file of requests) can't be used. `str()` lists the problems, one a line, with their line numbers."""

    http_status = 400
    exit_code = 2
    kind = default_code = "invalid_trace"


class ClientError(KilocardError):
    http_status = 400
    kind = "invalid_request_error"
    default_code = "invalid_request"


class Unauthorized(ClientError):
    """`code`: missing_api_key or invalid_api_key. No message repeats what was presented."""

    http_status = 401
    kind = "authentication_error"
    default_code = "invalid_api_key"


class Forbidden(ClientError):
    http_status = 403
    kind = "permission_error"
    default_code = "model_not_allowed"


#: The same words for a model that is not there: a tenant learns nothing of other tenants' models.
MODEL_NOT_ALLOWED = "This API key may not use the model of this request; GET /v1/models lists those that it may use."


class NotFound(ClientError):
    http_status = 404
    default_code = "not_found"


class MethodNotAllowed(ClientError):
    http_status = 405
    default_code = "method_not_allowed"


class RequestTimeout(ClientError):
    http_status = 408
    default_code = "request_timeout"


class PoisonRequest(ClientError):
    """Replicas died while they worked on this request; it is in quarantine, for `retry_after` seconds more."""

    http_status = 422
    default_code = "poison_request"


class BodyTooLarge(ClientError):
    http_status = 413
    default_code = "body_too_large"


class UrlTooLong(ClientError):
    http_status = 414
    default_code = "url_too_long"


class UnsupportedMedia(ClientError):
    http_status = 415
    default_code = "unsupported_content_encoding"


class HeaderTooLarge(ClientError):
    http_status = 431
    default_code = "headers_too_large"


class RateLimited(ClientError):
    """The tenant's own limit. `code` says which; without `retry_after` no waiting helps."""

    http_status = 429
    kind = "rate_limit_error"
    default_code = "requests_per_minute"


class CapacityError(KilocardError):
    """Our capacity, not the client's fault: 503 with Retry-After (429 is kept for the client's own limit)."""

    http_status = 503
    kind = "capacity_error"
    default_code = "no_capacity"

    def __init__(self, message: str, *, code: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, code=code, retry_after=retry_after)


class UpstreamError(KilocardError):
    http_status = 502
    kind = "upstream_error"
    default_code = "upstream_failed"


class UpstreamTimeout(UpstreamError):
    http_status = 504
    default_code = "upstream_timeout"


class EngineError(KilocardError):
    kind = default_code = "engine_error"


class StoreError(KilocardError):
    kind = default_code = "store_error"


class BackendError(KilocardError):
    kind = default_code = "backend_error"


class GpuShortage(BackendError):
    default_code = "gpu_shortage"


class PlanError(KilocardError):
    """What was asked for can't run: `code` says why, the message gives the numbers and what to do."""

    http_status = 422
    kind = "plan_error"
    default_code = "does_not_fit"
