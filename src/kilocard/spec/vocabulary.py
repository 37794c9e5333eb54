"""Words that a cluster file may use where the list is closed. Rooms above know what they mean."""

from __future__ import annotations

#: engines that this version knows; what each can do is in engines/
ENGINES = frozenset({"vllm", "sglang", "trtllm", "llamacpp", "ollama", "transformers", "emulated", "external"})
#: never started by kilocard: pools need `endpoints` or `dns`
NEVER_STARTED = frozenset({"external"})
#: need no model source: nothing to load, or (llamacpp) a small default model, see engines.base.Capabilities
NEEDS_NO_MODEL = frozenset({"emulated", "external", "llamacpp"})

POLICIES = ("round_robin", "least_connections", "queue_depth", "adaptive", "prefix_affinity")
#: look at how prompts begin, which costs time for each request
READS_PROMPTS = frozenset({"prefix_affinity"})

#: how a pool's number of replicas is decided, and what `threshold` may watch
SCALING_POLICIES = ("threshold", "target")
SIGNALS = ("waiting", "in_flight", "kv_usage", "queue_time", "ttft")
#: of these: seconds, so that bounds that count requests mean nothing
TIMES = frozenset({"queue_time", "ttft"})
PRIORITIES = ("low", "normal", "high")

MOST_REPLICAS = 100_000

#: names of pools stand in file names, Kubernetes objects and metrics
POOL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
POOL_NAME_ADVICE = (
    "use letters, digits, dots, - and _ (at most 100), a letter or digit first and last; the public name belongs under "
    "models"
)
#: public names of models, and names of tenants: any printable text without space at its ends
NAME = r"[^\s\x00-\x1f\x7f\ud800-\udfff](?:[^\x00-\x1f\x7f\ud800-\udfff]{0,198}[^\s\x00-\x1f\x7f\ud800-\udfff])?"
NAME_ADVICE = "use up to 200 printable characters, without space at either end"
