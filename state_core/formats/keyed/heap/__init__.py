"""The heap backend's own format, whose entries have no lengths.

==================  ==========================================================
`heap_native`       the files
`heap_recovery`     ends of values whose class alone could walk them
`entry_walking`     entries without lengths, walked value by value
==================  ==========================================================
"""
