"""Who is asking, what they may use, what it costs them. Pure: keys, claims, limits, reservations, records of usage.

Where keys, counts and records are kept is the business of `stores/`; this room opens nothing and reads no clock.
"""
