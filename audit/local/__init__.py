"""Servers on this machine: the model cache (`models`), and llama.cpp started, owned, restarted and stopped (`owned`).

`launch` turns settings into words for llama.cpp, `child` is the process that becomes the server, `process` reads what
the operating system says about it, `fetch` downloads. Import from the modules; this file imports nothing, so that
naming a model loads no server code.
"""
