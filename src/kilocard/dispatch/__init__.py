"""The dispatcher: one pure state machine, events in, instructions out.

The same machine runs behind the gateway, behind the Envoy endpoint picker, in the simulator and in the replay of
a recorded log. It never does I/O, never reads a clock (every event carries `now`) and draws random numbers only
from the generator that it is handed.
"""
