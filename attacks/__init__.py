"""Attacks on the promises of Ingot: named, seeded, each with the findings it makes.

`python -m attacks` runs them; `attacks.campaign` describes what an attack is.
"""
