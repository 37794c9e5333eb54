"""A cluster file as a Helm chart: values that are the cluster file, templates that are the Kubernetes objects.

The templates are not written by hand and know no rule of their own. The Kubernetes renderer is run with marks in place
of values, and where a mark comes out as it went in, the template reads that value (`knobs.py`). What is more than
passed through, the chart's schema holds to what the cluster file said: changing it means rendering the chart again.
"""
