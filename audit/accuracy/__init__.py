"""Accuracy: how far a server's rows are from a float32 reference, against bounds that were frozen before.

`decode` makes the reference's model, `corpus` and `plan` say what is sent, `capture` records one group of one model,
`calibrate` freezes bounds, `check` compares, `reproduce` captures a reference again. docs/reference/accuracy.md has the
formats. Import from the modules; this file imports nothing.
"""
