"""Remedy: which setting makes a server reproducible, and what it costs; and which neighbour moved a request's numbers.

`catalogue` lists what can be set, `launcher` starts a server under it, `measure` becomes a sealed record of audits, one
for each start, `findings` says what they amount to, `text` and `page` show it. `isolate`, `shrink` and `pack` take one
divergent cell of an audit and leave the smallest batch that moves its numbers. Nothing is imported here.
"""
