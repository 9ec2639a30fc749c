"""What every adapter needs, once: an adapter is then its platform's peculiarities and nothing else.

`supervisor` runs an account and stores until stored, `shapes` reads a platform's JSON, `catchup`
reads back what was missed, `reassembly` puts together what a platform brings in pieces, `webhook`
serves calls. Each is a module of its own, so that nobody pays for importing what they do not use.
"""
