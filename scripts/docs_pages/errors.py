"""docs/reference/errors.md: the error tree out of core/errors.py, and what each code means.

The meanings stand here. tests/unit/docs/test_errors_page.py holds the list to the codes that src/ uses.
"""

from __future__ import annotations

from typing import NamedTuple

from kilocard.core import errors
from kilocard.core.errors import KilocardError
from kilocard.dispatch.config import RETRY_AFTER


class Code(NamedTuple):
    name: str
    #: HTTP status; 0 where no client ever sees it
    status: int
    meaning: str
    what_to_do: str


def _client(lines: str) -> tuple[Code, ...]:
    """status | code | meaning | what to do"""
    rows = [line.split(" | ") for line in lines.strip().splitlines()]
    return tuple(Code(name, int(status), meaning, what) for status, name, meaning, what in rows)


def _other(lines: str) -> tuple[Code, ...]:
    """code | meaning | what to do"""
    rows = [line.split(" | ") for line in lines.strip().splitlines()]
    return tuple(Code(name, 0, meaning, what) for name, meaning, what in rows)


#: what a client of the gateway can get
CLIENT = _client("""
400 | invalid_http | not HTTP/1.1, or TLS to a plain port | check the URL's scheme and the proxy in between
400 | empty_body | a POST without a body | send a JSON object
400 | invalid_json | the body is no JSON object; the message says why | fix the body
400 | invalid_model | `model` is no text, or empty | name one of GET `/v1/models`
400 | model_required | no `model`, and the gateway has several | name one of GET `/v1/models`
400 | invalid_multipart | a form that is cut off or has no boundary | let a library make the form
400 | unsupported_content_type | the route takes `multipart/form-data` | send a form
400 | bad_framing | not HTTP/1.1, on the admin address | check the URL
400 | invalid_timeout | `x-kilocard-timeout` is no number of seconds above 0 | send one, or leave it out
400 | invalid_replicas | PUT `/replicas` with what is no list of replicas | use one version everywhere
400 | invalid_request | anything else that is wrong with a request | read the message
401 | missing_api_key | the cluster file has tenants, and no key came | send `Authorization: Bearer KEY`
401 | invalid_api_key | the key is not known here | check the key and the gateway's address
401 | invalid_token | the identity provider's token is not accepted; the message says why | get a new token
403 | unknown_tenant | the token is good, but names no tenant of the cluster file | `gateway.oidc.tenant_claim`
403 | model_not_allowed | this key may not use the model | GET `/v1/models` lists those that it may
403 | local_only | the admin address takes changes only from its own machine, and not from a browser | ask from there
404 | model_not_found | no such model; the message lists those that exist | use one of them
404 | no_cluster_file | POST `/reload` of a built-in cluster, or of a worker | ask the process with the file
404 | no_controller | GET `/scaling` where no controller runs or tells | ask `kilocard up` or `kilocard control`
404 | unknown_path | no such route here | see [the routes](../gateway.md#routes)
404 | not_found | anything else that is not there | read the message
405 | method_not_allowed | inference routes take POST, the admin address GET | use that method
408 | request_timeout | the request came too slowly | send faster; `gateway.limits.client_idle`, `.body_rate`
413 | body_too_large | the body is over `gateway.limits.body` | send less, or raise it
414 | url_too_long | path and query are over `gateway.limits.url` | put it into the body
415 | unsupported_content_encoding | the body is compressed | send it as it is, without `content-encoding`
422 | poison_request | replicas [died of this body](../protection.md#poison-requests) | wait for Retry-After; change it
429 | requests_per_minute | the tenant's requests of the last minute are used up | wait for Retry-After
429 | tokens_per_minute | what is left of the tenant's tokens of the minute is too little | wait for Retry-After
429 | concurrency | as many requests of the tenant run as may | wait for one to end
429 | tokens_per_day | the tenant's budget of the day (UTC) leaves too little | wait for the next day
429 | tokens_per_month | the tenant's budget of the month (UTC) leaves too little | wait for the next month
429 | request_exceeds_limit | this request alone is over a limit of tokens: it never passes | lower `max_tokens`
431 | headers_too_large | the head is over `gateway.limits.header`, or has over 256 lines | send less, or raise it
500 | internal_error | a fault of kilocard | report it with the gateway's log
502 | connect | no replica that was tried could be reached | `kilocard status`; are the engines running?
502 | reset | the replica closed the connection before its answer was whole | the engine's log
502 | status | the replica answered with an error, or sent one in its stream | the engine's log
502 | protocol | what the replica sent is not HTTP | is that address an engine?
502 | upstream_failed | anything else that a replica broke | the engine's log
503 | no_capacity | anything else that there is no room for | try again after Retry-After
503 | engine_queue_full | every replica that was tried said 429: its queue is full | try again later; add replicas
503 | hold_full | every replica is busy and `hold.max` requests wait that go first | try again later; add replicas
503 | deadline_exceeded | every replica was busy until the request's own deadline | give it more time; add replicas
503 | hold_timeout | every replica was busy for all of `hold.timeout` | try again later; add replicas
503 | not_ready | every replica that was tried said that its model is still loading | `kilocard status`; its log
503 | no_replica | no replica of the model exists, and none came within `hold.timeout` | `kilocard status`
503 | buffers_full | all bodies together are over `gateway.limits.buffered` | try again; raise it
503 | issuer_unavailable | the identity provider's keys are not known yet, or are being fetched | try again; the log
503 | too_many_connections | over `gateway.limits.connections` or half the file descriptors | raise it, or `ulimit -n`
503 | no_descriptors | no file descriptor or local port is left for a replica's connection | raise `ulimit -n`
503 | shutting_down | the gateway stops and its `drain` time is over | ask another gateway, or later
504 | first_token_timeout | no first token in time | `timeouts.first_token`; is the prompt huge?
504 | idle_timeout | the stream stood still for `timeouts.idle` | the engine hangs: its log
504 | total_timeout | not finished within `timeouts.total` or `x-kilocard-timeout` | raise it, or ask for less
504 | upstream_timeout | anything else that a replica was too slow for | the engine's log
""")

#: what commands say and exit with
COMMANDS = _other("""
invalid_cluster_file | the cluster file has errors; all of them are listed with their lines | fix them
usage_error | the command line makes no sense | `--help`
invalid_trace | a trace cannot be read; the message has the lines | [workloads](../workloads.md#traces)
bad_url | not an http:// URL | write `http://host:port`
address_in_use | can't listen there | another gateway runs? `--port`, `--admin-port`
worker_failed | a worker of `--workers` ended before it served | its lines on standard error; `--workers 1`
backend_error | a process, port or file on this machine | read the message
gpu_shortage | fewer GPUs than the replicas need; the message says who holds which | fewer replicas
engine_error | an engine can't be started like that | read the message
store_error | the embedded store, or another one, can't be opened, read or written | see the message
does_not_fit | a plan that no engine could run | the message has the sum
indivisible | heads, vocabulary, layers or experts can't be divided over so many GPUs | another degree of parallelism
no_room_for_kv | weights and peak leave nothing for the KV cache | the message says what helps
max_model_len_does_not_fit | one request of that length is larger than the KV cache | the length that the message names
nothing_served | on virtual time no request of the load was served | shorter requests, more memory or GPUs
max_num_seqs_too_high | fewer blocks in the cache than sequences with a state | the number that the message names
utilization_too_high | too little of the GPU stays outside the engine's budget | the highest that the message names
bad_engine_argument | `args` has a flag that is kilocard's to set, or that makes no sense | see the message
""")

#: what only logs, and the problems that discovery and scraping report, have
LOGS = _other("""
connect_failed | nobody listens at a probe's, scrape's or API server's address | is it up?
tls_failed | TLS to the Kubernetes API failed | the CA, the clock
too_large | an answer over its bound | is that the right page?
bad_request | a method that HTTP does not have | report it
dns_failed | the name of a pool's `dns` does not resolve; replicas stay as they were | the name, the DNS
forbidden | the Kubernetes API refuses the service account, or its token is missing | RBAC
gone | the Kubernetes API forgot the version: a new list follows | nothing
not_prometheus_text | a metrics page that is none | is that the right port?
""")

INTRO = """\
# Errors

<!-- Written by scripts/generate-docs from src/kilocard/core/errors.py and scripts/docs_pages/errors.py. -->

Every error has one class, and every class one HTTP status and one exit code. The gateway answers in OpenAI's shape:

```json
{"error": {"message": "…", "type": "capacity_error", "param": null, "code": "hold_full"}}
```

and on `/v1/messages` in Anthropic's (`{"type": "error", "error": {…}}`). `message` is for people and may change;
`code` is for programs, from the closed list below. In the middle of a stream the same object comes as the last event,
`data: {"error": …}`, and no `[DONE]` follows.

4xx: the request has to change. 502 and 504: a replica's fault; every replica that could be tried was tried.
503: our capacity, always with `Retry-After`. An engine's own 4xx comes through as the engine wrote it; so does the
last 5xx when all attempts ended in one.

"""


def error_pages() -> dict[str, str]:
    parts = [INTRO, "## Codes that clients see\n\n", _table(CLIENT, statuses=True)]
    parts += ["\n## Codes of commands\n\n", _table(COMMANDS, statuses=False)]
    parts += ["\n## Codes in logs only\n\n", _table(LOGS, statuses=False)]
    parts += ["\n## Classes\n\n", _classes()]
    return {"docs/reference/errors.md": "".join(parts)}


def _table(codes: tuple[Code, ...], *, statuses: bool) -> str:
    lines = []
    if statuses:
        lines += ["| code | status | Retry-After | meaning | what to do |", "|---|---|---|---|---|"]
    else:
        lines += ["| code | meaning | what to do |", "|---|---|---|"]
    for code in codes:
        cells = [f"`{code.name}`"]
        if statuses:
            cells += [str(code.status), _retry_after(code)]
        lines.append("| " + " | ".join([*cells, code.meaning, code.what_to_do]) + " |")
    return "\n".join(lines) + "\n"


def _retry_after(code: Code) -> str:
    if code.status != 503:
        return "–"
    return f"{RETRY_AFTER.get(code.name, 1.0):g} s"


def _classes() -> str:
    lines = ["| class | HTTP status | exit code | `type` | usual code |", "|---|---|---|---|---|"]
    for depth, kind in _tree(KilocardError, 0):
        indent = "· " * depth
        numbers = f"{kind.http_status} | {kind.exit_code}"
        lines.append(f"| {indent}`{kind.__name__}` | {numbers} | `{kind.kind}` | `{kind.default_code}` |")
    return "\n".join(lines) + "\n"


def _tree(kind: type[KilocardError], depth: int) -> list[tuple[int, type[KilocardError]]]:
    """In the order of the file; subclasses of other rooms left out, so that the page does not depend on imports."""
    found = [(depth, kind)]
    for child in vars(errors).values():
        if isinstance(child, type) and child.__bases__ == (kind,):
            found += _tree(child, depth + 1)
    return found
