"""One file for each thing that reads bytes of others: SEEDS, and check(data)."""

from __future__ import annotations

#: name → what it reads
TARGETS = {
    "request": "requests of clients: framing, however cut, with a remembered head and without",
    "connection": "a client's connection: pipelining, pauses, time, the account of buffered bytes",
    "response": "replicas' responses: framing, however cut",
    "relay": "event streams on their way to the client",
    "events": "what events and whole answers say of usage and errors",
    "body": "JSON bodies: the peek, and the edits",
    "form": "multipart forms",
    "metrics": "metrics pages: the fast reader against the exact one",
    "scrape": "responses to a scrape",
    "admin": "requests to the admin address",
    "cluster": "cluster files",
    "keys": "keys files",
    "trace": "the traceparent header",
    "token": "JSON Web Tokens before their signature is checked",
    "decisions": "decision logs",
    "link": "what supervisor and workers say to each other",
}
