"""The target `helm`: a chart of this cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kilocard.deploy.helm.knobs import knobs, marked
from kilocard.deploy.helm.schema import values_schema
from kilocard.deploy.helm.template import template
from kilocard.deploy.helm.values import values
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec

_HEAD = "Written by `kilocard render helm`. Change the cluster file and render again."
_VALUES_HEAD = """\
The cluster file. What values.schema.json lets you change, a release may set (-f, --set); for the rest change the
cluster file and render the chart again. Passwords and tokens come from Secrets, never from here."""
#: in place of the namespace, until the template is written
_RELEASE = "zqnamespacezq"
_NOTES = """\
kilocard {{ .Chart.AppVersion }} in namespace {{ .Release.Namespace }}.

  kubectl -n {{ .Release.Namespace }} get pods -l app.kubernetes.io/name=kilocard
  kubectl -n {{ .Release.Namespace }} port-forward service/kilocard-gateway 8000:SERVICE_PORT

Then ask SCHEME://127.0.0.1:8000/v1/models. Replicas are ready when their weights are loaded.
"""


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    release = replace(options, namespace=_RELEASE)
    document = values(spec, release)
    found = knobs(document, release)
    scheme, port = ("http", "80") if spec.gateway.tls is None else ("https", "443")
    chart: dict[str, Any] = {
        "apiVersion": "v2",
        "name": "kilocard",
        "description": "Language models on Kubernetes behind one gateway, as one cluster file says",
        "type": "application",
        "version": options.version,
        "appVersion": options.version,
        # preStop sleep without a shell in the image
        "kubeVersion": ">=1.30.0-0",
    }
    files = {
        "Chart.yaml": yaml_text(chart, _HEAD),
        "values.yaml": yaml_text(document, _VALUES_HEAD),
        "values.schema.json": json.dumps(values_schema(document, found), indent=2, ensure_ascii=False) + "\n",
        "templates/NOTES.txt": _NOTES.replace("SERVICE_PORT", port).replace("SCHEME", scheme),
    }
    for file, things in marked(document, found, release).items():
        files[f"templates/{file}"] = template(things, found, _HEAD).replace(_RELEASE, "{{ .Release.Namespace }}")
    return files


HELM = Target("helm", "A chart whose values are the cluster file", render)
