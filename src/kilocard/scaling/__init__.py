"""How many replicas a pool should have, and which one goes.

Pure: signals with ages in, a decision with a reason, a sentence and its numbers out. The controller and the simulator
run the same code. Nothing here starts, drains or stops anything, reads a clock, or knows where replicas run.
"""
