"""A client's request as the gateway sees it, and as each replica shall get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kilocard.core.errors import ClientError, UnsupportedMedia
from kilocard.core.prefix import Prefix
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.routes import Route
from kilocard.spec.model import Timeouts
from kilocard.tenancy.access import ANYBODY, Tenant
from kilocard.wire import edit, multipart, tokens
from kilocard.wire.peek import peek

if TYPE_CHECKING:
    from kilocard.gateway.target import Target


#: characters; the cluster file has no longer names
LONGEST_NAME: Final = 200


class Inbound:
    """One inference request, read but not yet sent anywhere."""

    __slots__ = (
        "_field",
        "_has_options",
        "_wants_usage",
        "body",
        "choices",
        "head",
        "hide_usage",
        "limited",
        "model",
        "named",
        "output_tokens",
        "prefix",
        "prompt_tokens",
        "query",
        "route",
        "stream",
        "tenant",
        "text_bytes",
    )

    def __init__(self, route: Route, arrival: Arrival, tenant: Tenant) -> None:
        """Raises ClientError where the body can't be read."""
        if arrival.head.encoded:
            raise UnsupportedMedia("Compressed bodies are not read here: send it without content-encoding.")
        body = arrival.body
        self.tenant = tenant
        self.route = route
        self.query = arrival.query
        self.head = arrival.head
        self.body = body
        #: a usage chunk in the stream is there only because we asked for it
        self.hide_usage = False
        #: how the prompt begins, where the model's policy wants to know
        self.prefix: Prefix | None = None
        size = len(body)
        if size > tokens.PICTURE_BYTES:
            size = tokens.text_bytes(body)
        #: bytes of it that prompt_tokens are estimated from
        self.text_bytes = size
        self.prompt_tokens = size // tokens.BYTES_PER_TOKEN + 1
        if route.multipart:
            model = self._read_form()
        else:
            self._field: multipart.Field | None = None
            seen = peek(body)
            model = seen.model
            self.stream = seen.stream
            self.output_tokens = seen.output_tokens
            self._wants_usage = seen.wants_usage
            self._has_options = seen.has_stream_options
            self.choices = seen.choices
            #: output_tokens is the client's own bound
            self.limited = seen.limited
        #: the model that was asked for by name; None: the client left it out
        self.named = model
        self.model = model or ""
        if len(self.model) > LONGEST_NAME:  # nobody's: what is told and kept of it is bounded
            self.model = self.model[:LONGEST_NAME] + "…"

    def _read_form(self) -> str | None:
        if not self.head.content_type.lower().startswith(b"multipart/form-data"):
            raise ClientError(f"{self.route.path} takes multipart/form-data.", code="unsupported_content_type")
        self._wants_usage = self._has_options = self.limited = False
        self.choices = 1
        self.output_tokens = tokens.DEFAULT_OUTPUT_TOKENS
        mark = multipart.boundary(self.head.content_type)
        flag = multipart.find(self.body, mark, b"stream")
        self.stream = flag is not None and flag.value.strip().lower() == b"true"
        self._field = multipart.find(self.body, mark, b"model")
        return None if self._field is None else self._field.value.decode("utf-8", "replace")

    @property
    def uncounted_prompt(self) -> int:
        """What a prompt is charged that no engine counted. A form's bytes are a recording or a picture and say nothing
        about tokens; for some routes no model runs."""
        return 0 if self.route.multipart or self.route.free else self.prompt_tokens

    def first_token_limit(self, timeouts: Timeouts) -> float:
        """Seconds until the first byte of an answer has to come.

        An answer that is not streamed comes when its last token is made, so its tokens are added; where nobody said how
        many they may be, only the total time-out is left.
        """
        limit = timeouts.first_token + timeouts.first_token_per_prompt_token * self.prompt_tokens
        if self.stream or not self.route.generates:
            return limit
        return limit + timeouts.per_output_token * self.output_tokens if self.limited else timeouts.total

    def for_replica(self, target: Target, upstream_id: bytes) -> tuple[bytes, bytes]:
        """Head and body for one replica: its name for the model, usage asked for, our own request id."""
        body = self.body
        if target.keys_in_any_case and not self.route.multipart:
            body = edit.one_spelling(body)
        names = target.model_names
        name = names.get(self.model, self.model) if names else self.model
        if name != self.named:
            if self._field is not None:
                body = body[: self._field.start] + name.encode() + body[self._field.end :]
            elif not self.route.multipart:
                body = edit.edit(body, {"model": name})
        self.hide_usage = False
        if self.stream and self.route.usage_option and not self._wants_usage and target.stream_usage:
            asked = edit.with_usage(body, self._has_options)
            self.hide_usage = asked is not body
            body = asked
        head = b"%b%b HTTP/1.1\r\nhost: %b\r\n%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (
            self.route.request_line,
            self.query,
            target.connections.host_header,
            self.head.forward,
            self.head.credentials if self.tenant is ANYBODY else b"",
            upstream_id,
            len(body),
        )
        return head, body
