"""Erasure on request: a sensor has each request planned, somebody approves, a check keeps time.

=====================  ==============================================================
`request_files`        requests as they come in: a directory of JSON files
`redaction`            what Dagster may keep: nothing of what is to be erased
`lake_erasure`         the names and places of a lake's erasures
`erasure_ops`          the plan, the erasure, the audit
`erasure_metadata`     what the UI shows of them
`expired_requests`     the check: whose promised time has passed
`erasure_definitions`  all definitions of them
=====================  ==============================================================
"""
