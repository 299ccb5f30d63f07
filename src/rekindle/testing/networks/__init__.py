"""Local servers that speak the documented protocols of chat networks, for tests.

The client libraries of the platforms talk to them as to the real networks. They need aiohttp.
"""
