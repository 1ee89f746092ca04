"""Erasure on request: a sensor plans each request, a person approves it, a check watches its term.

=====================  ==============================================================
`request_files`        the requests: a directory of JSON files
`redaction`            messages for Dagster without erased keys
`lake_erasure`         the names and places of a lake's erasures
`erasure_ops`          the plan, the erasure, the audit
`erasure_definitions`  all definitions of them
=====================  ==============================================================
"""
