"""A cluster file written out for other programs: {path: text} for Kubernetes, proxies, Prometheus and more.

Pure: nothing here opens a file, looks at this machine or knows what runs now; the same cluster file always gives the
same bytes, so that what was rendered can be reviewed and kept in git. `targets.py` lists what can be rendered. Nothing
here decides at run time: a rendered file holds what must be true before kilocard runs, and no number that the
controller changes afterwards.
"""
