"""Verbs of the command `moorage` that are nothing but verbs."""
