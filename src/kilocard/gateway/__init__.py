"""The data plane: asyncio protocols both ways, the driver of the dispatcher, the admin listener.

Decides nothing itself.
"""
