"""Tools of MCP servers: `servers` owns the connections, and gives what they offer as tools.

The SDK is imported by `connection`, which nothing imports before a server is configured.
"""
