"""Helpers for adapters, so that an adapter holds only the peculiarities of its platform.

`accounts` is a channel of several accounts, `supervisor` runs one. What comes in: `intake` keeps
a chat's order, `json_access` reads a platform's JSON, `reassembly` puts together what a platform
brings in parts, `webhook` serves calls. What goes out: `text` measures and cuts, `markdown` parses,
`drafts` shows a reply that is being written, `client` calls a platform.
Each is a module of its own, so that nobody pays for importing what they do not use.
"""
