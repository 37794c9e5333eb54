"""The controller: once a second it observes, decides, acts and records.

It asks gateways what they know and a backend what runs, lets `scaling` decide, and starts or drains replicas through
the backend. It is the only writer of replica counts, it acts only while it holds the lease, and no error ends it: each
is counted, kept for people to see, and tried again. It decides nothing itself and sees no request.
"""
