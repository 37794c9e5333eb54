"""The keys that say where and how things are deployed: `placement` and `resources` of a pool, and `kubernetes:`."""

from __future__ import annotations

from kilocard.spec.deployment import GatewayCount, KubernetesSpec, ModelCacheSpec, PlacementSpec, ResourcesSpec
from kilocard.spec.kinds import SIZE, Choice, Number, Text, Whole, YesNo
from kilocard.spec.sections import Key, ListOf, Named, Section

#: a DNS label: name of a Service, a namespace, a port
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = Text(
    pattern=rf"{LABEL}(?:\.{LABEL})*", advice="use lower-case letters, digits and dashes", label="name", longest=253
)
_LABEL = Text(pattern=LABEL, advice="use at most 63 lower-case letters, digits and dashes", label="name")
_TAINT_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_TAINT_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")

PLACEMENT = Section(
    PlacementSpec(),
    "Where replicas may run.",
    (
        Key(
            "node_selector",
            Named(
                Text(
                    pattern=_TAINT_VALUE,
                    advice="write what a node's label can have: at most 63 letters, digits, dots, - and _",
                    may_be_empty=True,
                ),
                "label",
                _TAINT_KEY,
                "use a node label's name, as gpu-type or example.com/gpu-type",
            ),
            "Labels that a node must have.",
        ),
        Key(
            "tolerations",
            ListOf(
                Text(
                    pattern=rf"{_TAINT_KEY}(?:={_TAINT_VALUE})?(?::(?:NoSchedule|PreferNoSchedule|NoExecute))?",
                    advice="write a taint as kubectl does: key, key=value or key=value:NoSchedule",
                    label="key[=value][:effect]",
                ),
                "taint",
            ),
            "Taints of nodes that replicas bear.",
        ),
        Key("runtime_class", _DNS_NAME, "RuntimeClass of the pods: `nvidia` where that is not the nodes' default."),
        Key(
            "exclusive",
            YesNo(),
            "Only on nodes that have the label and the taint `kilocard/tenant` of one of the pool's `tenants`.",
        ),
    ),
    "Placement",
)

RESOURCES = Section(
    ResourcesSpec(),
    "What a replica's container needs besides GPUs; of a replica over several machines, each part.",
    (
        Key("cpu", Number(not_zero="write a number of cores", label="number > 0"), "Cores that are kept for it."),
        Key("memory", SIZE, "Main memory: kept for it, and the most that it gets (`shm` counts too)."),
        Key("shm", SIZE, "Most of /dev/shm, through which processes of one replica talk.", default="16GiB"),
    ),
    "Resources",
)

_MODEL_CACHE = Section(
    ModelCacheSpec(),
    "Where replicas keep what they fetch. Left out: in each pod, to be fetched again after every start.",
    (
        Key("claim", _DNS_NAME, "PersistentVolumeClaim that exists and that several nodes can mount for writing."),
        Key("size", SIZE, "Or one of this size is made (ReadWriteMany)."),
        Key("storage_class", _DNS_NAME, "Its storage class.", default="the cluster's default"),
        Key(
            "host_path",
            Text(pattern=r"/[^\s:]+", advice="write an absolute path", label="path"),
            "Or a folder of each node.",
        ),
    ),
    "ModelCache",
)

KUBERNETES = Section(
    KubernetesSpec(),
    "What Kubernetes has to know and nothing else has.",
    (
        Key("namespace", _LABEL, "Namespace of all objects; it is made too. Left out: where they are applied."),
        Key("image", Text(), "Image with kilocard in it, for the gateway.", default="`kilocard:VERSION`"),
        Key(
            "gateways",
            Section(
                GatewayCount(),
                "How many gateways: between `min` and `max` by their CPU use.",
                (Key("min", Whole(1, 1000), "Fewest."), Key("max", Whole(1, 1000), "Most.")),
                "Gateways",
                short=(Whole(1, 1000), lambda count: {"min": count, "max": count}),
            ),
            "How many gateways; one number means exactly that many.",
        ),
        Key("expose", Choice(SERVICE_TYPES), "Type of the gateway's Service."),
        Key("model_cache", _MODEL_CACHE, "Where replicas keep what they fetch from the hub."),
        Key("hub_secret", _DNS_NAME, "Secret whose key `token` is the model hub's access token; it need not exist."),
        Key("monitoring_namespace", _LABEL, "Namespace of the Prometheus that may read metrics pages."),
        Key("pod_monitors", YesNo(), "Write PodMonitors too, for Prometheus' operator."),
        Key(
            "controller",
            YesNo(),
            "The controller writes the replica counts of pools with `scaling`: its Deployment and rights are rendered, "
            "and those pools' manifests have no count. Its backend for Kubernetes is not there yet.",
        ),
    ),
    "Kubernetes",
)
