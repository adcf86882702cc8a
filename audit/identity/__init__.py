"""The identity gate: does one build of llama.cpp compute exactly what another one does, every row compared as bytes.

The order of the modules is that of the data: plan.py says what every build is asked, architectures.py and assets.py
which models, builds.py, source.py and scrub.py what the builds are, serving.py and dumping.py run one, capture.py
writes the facts down, evidence.py reads them back, compare.py and judge.py make verdicts of them, findings.py puts them
together, text.py shows them. parity.py and chain.py use what was found. Import from the modules; this file imports
nothing.
"""
